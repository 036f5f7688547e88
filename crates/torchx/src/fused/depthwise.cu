// Convolution along the rows with a filter of its own for every column. A row sees the rows of its own utterance and
// zeros beside them; gaps come out zero. `TAPS`, odd, is set before this text.
//
// One thread holds two columns of a stretch of rows in registers, all loads in flight at once.

constexpr int HALF = TAPS / 2;
constexpr int SEEN = TILE + 2 * HALF;  // rows that a tile looks at

struct Filter {
    float2 taps[TAPS];

    __device__ Filter(const float* weight, int column) {
#pragma unroll
        for (int k = 0; k < TAPS; k++) taps[k] = make_float2(weight[column * TAPS + k], weight[(column + 1) * TAPS + k]);
    }
};

// Columns of the rows around a tile; those outside the tensor repeat its first or last row, and nobody looks at them.
__device__ void read_around(const Element* from, int first, int rows, int width, int column, Pair (&seen)[SEEN]) {
    const char* top = reinterpret_cast<const char*>(from + column);  // by bytes an address is one multiplication
    const int stride = width * (int)sizeof(Element);
#pragma unroll
    for (int r = 0; r < SEEN; r++) {
        const int row = min(max(first - HALF + r, 0), rows - 1);
        seen[r] = *reinterpret_cast<const Pair*>(top + (long long)row * stride);
    }
}

// For each of some rows, which of the rows around it are of its utterance: one bit for each tap, none in gaps or past the
// end.
template <int COUNT>
__device__ void find_neighbours(const int* owner, int first, int rows, int utterances, unsigned (&near)[COUNT]) {
    for (int r = threadIdx.y * blockDim.x + threadIdx.x; r < COUNT; r += blockDim.x * blockDim.y) {
        const int mine = owner_of(owner, first + r, rows, utterances);
        unsigned bits = 0;
#pragma unroll
        for (int k = 0; k < TAPS; k++)
            if (mine < utterances && owner_of(owner, first + r + k - HALF, rows, utterances) == mine) bits |= 1u << k;
        near[r] = bits;
    }
    __syncthreads();
}

extern "C" __global__ void forward(
    const Element* __restrict__ x,      // [rows, width]
    const float* __restrict__ weight,   // [width, TAPS]
    const float* __restrict__ bias,     // [width]
    const int* __restrict__ owner,      // [rows]
    Element* __restrict__ out,
    int rows, int utterances, int width)
{
    __shared__ unsigned near[TILE];
    const int column = 2 * (blockIdx.y * blockDim.x + threadIdx.x), first = blockIdx.x * TILE;
    find_neighbours(owner, first, rows, utterances, near);
    if (column >= width) return;
    Pair seen[SEEN];
    read_around(x, first, rows, width, column, seen);
    const Filter filter(weight, column);
    const float2 offset = make_float2(bias[column], bias[column + 1]);
#pragma unroll
    for (int r = 0; r < TILE; r++) {
        const unsigned bits = near[r];
        float2 sum = bits ? offset : make_float2(0.0f, 0.0f);
#pragma unroll
        for (int k = 0; k < TAPS; k++)
            if (bits >> k & 1) add_product(sum, filter.taps[k], widen(seen[r + k]));
        if (first + r < rows) put_pair(out + (long long)(first + r) * width, column, sum);
    }
}

constexpr unsigned ALL = (1u << TAPS) - 1;

// Writes a tile's gradient and adds to the sums of the taps and the bias. `WHOLE`: every row sees all its neighbours, as
// most do; then nothing is asked row by row.
template <bool WHOLE>
__device__ void add_tile(const Pair (&xs)[SEEN], const Pair (&grads)[SEEN], const Filter& filter, const unsigned* near,
                         float2 (&sums)[TAPS + 1], Element* grad_x, int width, int count) {
#pragma unroll
    for (int r = 0; r < TILE; r++) {
        const unsigned bits = WHOLE ? ALL : near[r];
        const float2 g = widen(grads[r + HALF]);
        float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int k = 0; k < TAPS; k++) {
            if (!(bits >> k & 1)) continue;
            add_product(sums[k], g, widen(xs[r + k]));
            // The row that is k - HALF away saw this one through the mirrored tap.
            add_product(sum, filter.taps[TAPS - 1 - k], widen(grads[r + k]));
        }
        if (bits) add_product(sums[TAPS], g, make_float2(1.0f, 1.0f));
        if (WHOLE || r < count) put_pair(grad_x + (long long)r * width, 0, sum);
    }
}

// Blocks of 32 x `STRETCH`: pairs of columns, and tiles, added up before they are written.
constexpr int STRETCH = 4;
// Blocks that a multiprocessor holds at once: as many as leave a thread its columns in registers, but for a few.
constexpr int BLOCKS = sizeof(Element) == 4 ? 1 : TAPS <= 5 ? 6 : 5;

extern "C" __global__ void __launch_bounds__(32 * STRETCH, BLOCKS) backward(
    const Element* __restrict__ x, const float* __restrict__ weight, const Element* __restrict__ grad,
    const int* __restrict__ owner,
    Element* __restrict__ grad_x,
    float* __restrict__ partial,        // [blocks of rows, TAPS + 1, width]: of each tap, of the bias
    int rows, int utterances, int width)
{
    __shared__ unsigned near[STRETCH * TILE];
    __shared__ float2 shares[STRETCH][TAPS + 1][32];
    const int column = 2 * (blockIdx.x * 32 + threadIdx.x);
    const int first = (blockIdx.y * STRETCH + threadIdx.y) * TILE;
    const bool inside = column < width && first < rows;
    Pair xs[SEEN], grads[SEEN];
    if (inside) {
        read_around(x, first, rows, width, column, xs);
        read_around(grad, first, rows, width, column, grads);
    }
    find_neighbours(owner, blockIdx.y * STRETCH * TILE, rows, utterances, near);
    float2 sums[TAPS + 1] = {};
    if (inside) {
        const Filter filter(weight, column);
        const unsigned* bits = near + threadIdx.y * TILE;
        bool whole = true;
#pragma unroll
        for (int r = 0; r < TILE; r++) whole &= bits[r] == ALL;
        Element* to = grad_x + (long long)first * width + column;
        if (whole) {
            add_tile<true>(xs, grads, filter, bits, sums, to, width, TILE);
        } else {
            add_tile<false>(xs, grads, filter, bits, sums, to, width, min(rows - first, TILE));
        }
    }
#pragma unroll
    for (int k = 0; k <= TAPS; k++) shares[threadIdx.y][k][threadIdx.x] = sums[k];
    __syncthreads();
    if (column >= width) return;
    for (int k = threadIdx.y; k <= TAPS; k += STRETCH) {
        float2 sum = shares[0][k][threadIdx.x];
#pragma unroll
        for (int i = 1; i < STRETCH; i++) add_product(sum, shares[i][k][threadIdx.x], make_float2(1.0f, 1.0f));
        *reinterpret_cast<float2*>(partial + ((long long)blockIdx.y * (TAPS + 1) + k) * width + column) = sum;
    }
}

extern "C" __global__ void sum_taps(
    const float* __restrict__ partial,  // [blocks, TAPS + 1, width]
    float* __restrict__ grad_weight,    // [width, TAPS]
    float* __restrict__ grad_bias,      // [width]
    int blocks, int width)
{
    const int columns = (TAPS + 1) * width, column = blockIdx.x * 32 + threadIdx.x;
    const float sum = sum_of_tiles(partial, blocks, columns, column);
    if (threadIdx.y != 0 || column >= columns) return;
    const int tap = column / width, at = column % width;
    if (tap < TAPS) {
        grad_weight[at * TAPS + tap] = sum;
    } else {
        grad_bias[at] = sum;
    }
}
