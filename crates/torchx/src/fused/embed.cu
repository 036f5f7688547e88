// Rows of a small table, times a number; the table is f32 whatever the rows are. Its gradient is a sum over all rows that
// took the same one: blocks sum their stretch of the rows in shared memory, and a second kernel adds the stretches.

constexpr int ROOM = 256;  // rows of the table that a block of the backward pass holds, 32 columns of each
constexpr int AHEAD = 16;  // rows on their way

// A vector for each thread.
extern "C" __global__ void forward(
    const float* __restrict__ table,  // [entries, width]
    const int* __restrict__ index,    // [rows]
    Element* __restrict__ out,        // [rows, width]
    int rows, int entries, int width, float scale)
{
    const int vectors = width / VECTOR;
    const long long at = (long long)blockIdx.x * 256 + threadIdx.x;
    if (at >= (long long)rows * vectors) return;
    const int row = (int)(at / vectors), column = (int)(at % vectors) * VECTOR;
    const int entry = (int)min((unsigned)index[row], (unsigned)(entries - 1));
    const float* from = table + (long long)entry * width + column;
    float values[VECTOR];
#pragma unroll
    for (int i = 0; i < VECTOR; i += 4) {
        const float4 four = *reinterpret_cast<const float4*>(from + i);
        values[i] = four.x * scale, values[i + 1] = four.y * scale;
        values[i + 2] = four.z * scale, values[i + 3] = four.w * scale;
    }
    store(out + at * VECTOR, values);
}

__device__ float widened(Element value) {
#ifdef BF16
    return __uint_as_float((unsigned)value << 16);
#else
    return value;
#endif
}

// Blocks of one warp: a stretch of rows, 32 columns, ROOM entries. One warp, so the order of the sums is the rows' own.
extern "C" __global__ void __launch_bounds__(32) backward(
    const Element* __restrict__ grad,   // [rows, width]
    const int* __restrict__ index,      // [rows]
    float* __restrict__ partial,        // [stretches, entries, width]
    int rows, int stretch, int entries, int width)
{
    __shared__ float sums[ROOM + 1][32];  // the last takes what belongs to other blocks
    const int lane = threadIdx.x, column = blockIdx.y * 32 + lane;
    const int first_entry = blockIdx.z * ROOM, held = min(entries - first_entry, ROOM);
    const bool inside = column < width;
    for (int i = 0; i < held; i++) sums[i][lane] = 0.0f;
    const int first = blockIdx.x * stretch, end = min(first + stretch, rows);
    // Lanes hold an entry each; behind the end the last row is read again and put aside.
    auto entry_at = [&](int row) {
        const int entry = index[min(row, end - 1)] - first_entry;
        return row < end && (unsigned)entry < (unsigned)held ? entry : ROOM;
    };
    grad += min(column, width - 1);
    auto value_at = [&](int row) { return widened(grad[(long long)min(row, end - 1) * width]); };
    int next_entry = entry_at(first + lane % AHEAD);
    float value[AHEAD], next_value[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++) next_value[i] = value_at(first + i);
    for (int from = first; from < end; from += AHEAD) {
        const int entry = next_entry;
#pragma unroll
        for (int i = 0; i < AHEAD; i++) value[i] = next_value[i];
        next_entry = entry_at(from + AHEAD + lane % AHEAD);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) next_value[i] = value_at(from + AHEAD + i);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) sums[__shfl_sync(0xffffffffu, entry, i)][lane] += value[i];
    }
    if (!inside) return;
    float* to = partial + ((long long)blockIdx.x * entries + first_entry) * width + column;
    for (int i = 0; i < held; i++) to[(long long)i * width] = sums[i][lane];
}

// Four columns of an entry for each thread.
extern "C" __global__ void sum_stretches(
    const float* __restrict__ partial,  // [stretches, entries * width]
    float* __restrict__ grad_table,     // [entries * width]
    int stretches, int count, float scale)
{
    const int at = (blockIdx.x * 256 + threadIdx.x) * 4;
    if (at >= count) return;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 8
    for (int i = 0; i < stretches; i++) {
        const float4 part = *reinterpret_cast<const float4*>(partial + (long long)i * count + at);
        sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
    }
    *reinterpret_cast<float4*>(grad_table + at) = make_float4(sum.x * scale, sum.y * scale, sum.z * scale, sum.w * scale);
}
