// What the fused kernels share. No headers: NVRTC finds none on a machine that only runs the program. `BF16` is set
// before this text where elements are bf16, else they are f32; all arithmetic is f32.
//
// Sums over rows run in two stages without atomics, so that two runs agree bit for bit: every block writes the sums of
// its tile of rows, and a second kernel adds the tiles in a fixed order.

#ifdef BF16
typedef unsigned short Element;
typedef unsigned Pair;  // two neighbouring elements, as they lie in memory
constexpr int VECTOR = 8;  // elements in 16 bytes, the widest load

__device__ float2 widen(Pair bits) {
    return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
}

// Rounds to nearest, ties to even.
__device__ Pair narrow(float2 values) {
#if __CUDA_ARCH__ >= 800
    Pair bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(values.y), "f"(values.x));
    return bits;
#else
    unsigned halves[2] = {__float_as_uint(values.x), __float_as_uint(values.y)};
    for (unsigned& half : halves) {
        const bool nan = (half & 0x7fffffffu) > 0x7f800000u;
        half = nan ? 0x7fffu : (half + 0x7fffu + ((half >> 16) & 1u)) >> 16;
    }
    return halves[0] | halves[1] << 16;
#endif
}

__device__ Element narrow(float value) { return (Element)narrow(make_float2(value, 0.0f)); }

__device__ void load(const Element* from, float (&values)[VECTOR]) {
    const uint4 bits = *reinterpret_cast<const uint4*>(from);
    const Pair pairs[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 both = widen(pairs[i]);
        values[2 * i] = both.x;
        values[2 * i + 1] = both.y;
    }
}

__device__ void store(Element* to, const float (&values)[VECTOR]) {
    Pair pairs[4];
#pragma unroll
    for (int i = 0; i < 4; i++) pairs[i] = narrow(make_float2(values[2 * i], values[2 * i + 1]));
    *reinterpret_cast<uint4*>(to) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}
#else
typedef float Element;
typedef float2 Pair;
constexpr int VECTOR = 4;

__device__ float2 widen(Pair pair) { return pair; }
__device__ Pair narrow(float2 values) { return values; }
__device__ Element narrow(float value) { return value; }

__device__ void load(const Element* from, float (&values)[VECTOR]) {
    const float4 bits = *reinterpret_cast<const float4*>(from);
    values[0] = bits.x, values[1] = bits.y, values[2] = bits.z, values[3] = bits.w;
}

__device__ void store(Element* to, const float (&values)[VECTOR]) {
    *reinterpret_cast<float4*>(to) = make_float4(values[0], values[1], values[2], values[3]);
}
#endif

// The pair at `column`, which is even.
__device__ Pair pair_at(const Element* row, int column) { return *reinterpret_cast<const Pair*>(row + column); }
__device__ void put_pair(Element* row, int column, float2 values) {
    *reinterpret_cast<Pair*>(row + column) = narrow(values);
}
__device__ void add_product(float2& sum, float2 a, float2 b) {
    sum.x += a.x * b.x;
    sum.y += a.y * b.y;
}

// The utterance of a row; `utterances` in gaps and outside. Whatever `owner` holds, it is a row of a table.
__device__ int owner_of(const int* owner, int row, int rows, int utterances) {
    return row >= 0 && row < rows ? (int)min((unsigned)owner[row], (unsigned)utterances) : utterances;
}

// Rows in a tile of the sums by utterance. Tile `b` keeps its sums for utterance `u` in slot `b + u`: utterances lie
// one after the other, so from one pair to the next at least one of the two rises, and no two pairs share a slot.
constexpr int TILE = 16;

// grad[utterance][part][column] from partial[slot][part][column]. Blocks of 32 x 8: columns, and shares of the tiles.
// The gaps' row is zero: what comes out of gaps is masked, so it has no gradient.
extern "C" __global__ void sum_segments(
    const float* __restrict__ partial,  // [tiles + utterances, parts * width]
    const int* __restrict__ starts, const int* __restrict__ lens,  // [utterances]
    Element* __restrict__ grad,         // [utterances + 1, parts, width]
    int tiles, int utterances, int parts, int width)
{
    __shared__ float shares[8][32];
    const int utterance = blockIdx.y, columns = parts * width, column = blockIdx.x * 32 + threadIdx.x;
    float share = 0.0f;
    if (utterance < utterances && column < columns && lens[utterance] > 0) {
        const int first = max(starts[utterance], 0) / TILE;
        const int last = min((starts[utterance] + lens[utterance] - 1) / TILE, tiles - 1);
        for (int tile = first + threadIdx.y; tile <= last; tile += 8)
            share += partial[(long long)(tile + utterance) * columns + column];
    }
    shares[threadIdx.y][threadIdx.x] = share;
    __syncthreads();
    if (threadIdx.y != 0 || column >= columns) return;
    float sum = 0.0f;
    for (int i = 0; i < 8; i++) sum += shares[i][threadIdx.x];
    grad[(long long)utterance * columns + column] = narrow(sum);
}

// The sum of one column of partial[tiles][columns], for the threads of a 32 x 32 block whose y is 0.
__device__ float sum_of_tiles(const float* __restrict__ partial, int tiles, int columns, int column) {
    __shared__ float shares[32][33];
    float share = 0.0f;
    if (column < columns)
        for (int tile = threadIdx.y; tile < tiles; tile += 32) share += partial[(long long)tile * columns + column];
    shares[threadIdx.y][threadIdx.x] = share;
    __syncthreads();
    float sum = 0.0f;
    if (threadIdx.y == 0)
        for (int i = 0; i < 32; i++) sum += shares[i][threadIdx.x];
    return sum;
}

extern "C" __global__ void sum_bias(
    const float* __restrict__ partial,  // [blocks, width]
    float* __restrict__ grad_bias,      // [width]
    int blocks, int width)
{
    const int column = blockIdx.x * 32 + threadIdx.x;
    const float sum = sum_of_tiles(partial, blocks, width, column);
    if (threadIdx.y == 0 && column < width) grad_bias[column] = sum;
}

// What the parts of a block's threads, so many warps, add up to: for its first thread.
template <int WARPS_OF_BLOCK>
__device__ float block_sum(float part) {
    __shared__ float parts[WARPS_OF_BLOCK];
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) part += __shfl_xor_sync(0xffffffffu, part, mask);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = part;
    __syncthreads();
    float sum = 0.0f;
    if (threadIdx.x == 0)
        for (int i = 0; i < WARPS_OF_BLOCK; i++) sum += parts[i];
    return sum;
}
