// From rows to what a convolution of `TAPS`, odd, sees of them, and back. `TAPS` is set before this text.
//
// Unfolded, row r holds the rows r - TAPS / 2 … r + TAPS / 2 side by side, zeros where they are of another utterance or
// none; folded, row r is the sum of what those rows hold for it. `mirrored`: of the taps in the opposite order, which makes
// each the gradient of the other. One tap has no neighbours, and so takes gaps as they are.

constexpr int HALF = TAPS / 2;
constexpr int DEPTH = 8, LANES = 32;  // a block's rows, and the most of its vectors in a row; as in convolution.cpp
constexpr int EACH = 4;               // rows of a thread of `unfold`, as in convolution.cpp

__device__ int column_of_thread() { return (blockIdx.y * blockDim.x + threadIdx.x) * VECTOR; }

// Whether the row sees the one that is so far away.
__device__ bool sees(const int* owner, int row, int distance, int rows, int utterances) {
    if (TAPS == 1) return true;
    const int mine = owner_of(owner, row, rows, utterances);
    return mine < utterances && owner_of(owner, row + distance, rows, utterances) == mine;
}

// x + dropout(folded + bias)
extern "C" __global__ void fold(
    const Element* __restrict__ y,         // [rows, TAPS, width]
    const Element* __restrict__ x,         // [rows, width], or none
    const float* __restrict__ bias,        // [width], or none
    const int* __restrict__ owner,         // [rows]
    Element* __restrict__ out,             // [rows, width]
    int rows, int utterances, int width, int mirrored, const unsigned* seed, int layer, int threshold, float scale)
{
    const int column = column_of_thread(), row = blockIdx.x * DEPTH + threadIdx.y;
    if (column >= width || row >= rows) return;
    const long long at = (long long)row * width + column;
    float sums[VECTOR] = {}, start[VECTOR] = {};
    if (x) load(x + at, start);
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++) {
        if (!sees(owner, row, tap - HALF, rows, utterances)) continue;
        const int slot = mirrored ? TAPS - 1 - tap : tap;
        float values[VECTOR];
        load(y + ((long long)(row + tap - HALF) * TAPS + slot) * width + column, values);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) sums[i] += values[i];
    }
    if (bias)
#pragma unroll
        for (int i = 0; i < VECTOR; i++) sums[i] += bias[column + i];
    Dropout{seed, layer, threshold, scale}(sums, (unsigned)(at / VECTOR));
#pragma unroll
    for (int i = 0; i < VECTOR; i++) sums[i] += start[i];
    store(out + at, sums);
}

// unfolded(dropout(x)), and the sums of its columns.
extern "C" __global__ void unfold(
    const Element* __restrict__ x,         // [rows, width]
    const int* __restrict__ owner,         // [rows]
    Element* __restrict__ out,             // [rows, TAPS, width]
    float* __restrict__ partial,           // [blocks, width], or none
    int rows, int utterances, int width, int mirrored, const unsigned* seed, int layer, int threshold, float scale)
{
    __shared__ float shares[DEPTH][LANES][VECTOR];
    const int column = column_of_thread();
    const Dropout dropout = {seed, layer, threshold, scale};
    float sums[VECTOR] = {};
    const float nothing[VECTOR] = {};
    if (column < width) {
        // All of a thread's rows in flight at once. Past the end they are the last one again: it writes what that holds
        // anyway. To ask there would make the compiler load a row only after the one before it.
        const int first = blockIdx.x * EACH * DEPTH + threadIdx.y;
        uint4 bits[EACH];
#pragma unroll
        for (int each = 0; each < EACH; each++) {
            const int row = min(first + each * DEPTH, rows - 1);
            bits[each] = *reinterpret_cast<const uint4*>(x + (long long)row * width + column);
        }
#pragma unroll
        for (int each = 0; each < EACH; each++) {
            const int row = min(first + each * DEPTH, rows - 1);
            const long long at = (long long)row * width + column;
            float values[VECTOR];
            load(reinterpret_cast<const Element*>(&bits[each]), values);
            dropout(values, (unsigned)(at / VECTOR));
#pragma unroll
            for (int i = 0; i < VECTOR; i++) sums[i] += first + each * DEPTH < rows ? values[i] : 0.0f;
#pragma unroll
            for (int tap = 0; tap < TAPS; tap++) {
                const int slot = mirrored ? TAPS - 1 - tap : tap;
                if (sees(owner, row, HALF - tap, rows, utterances))
                    store(out + ((long long)(row + HALF - tap) * TAPS + slot) * width + column, values);
                if (!sees(owner, row, tap - HALF, rows, utterances))
                    store(out + ((long long)row * TAPS + slot) * width + column, nothing);
            }
        }
    }
    if (!partial) return;
#pragma unroll
    for (int i = 0; i < VECTOR; i++) shares[threadIdx.y][threadIdx.x][i] = sums[i];
    __syncthreads();
    if (threadIdx.y != 0 || column >= width) return;
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        float sum = 0.0f;
        for (int y = 0; y < DEPTH; y++) sum += shares[y][threadIdx.x][i];
        partial[(long long)blockIdx.x * width + column + i] = sum;
    }
}
