// The gradient of the weights: each block adds up its tiles in registers, a warp three taps or one, and a second kernel adds
// the blocks in a fixed order.

constexpr int WARPS = 9, THREADS = 32 * WARPS;  // as in plane.cpp
constexpr int WARP_TAPS = (TAPS + WARPS - 1) / WARPS;
constexpr int STAGE = SEEN + TILE_T * TILE_F * TO;
constexpr int FROM_TILES = FROM / 8;

extern "C" __global__ void __launch_bounds__(THREADS) forward(
    const Element* __restrict__ x, const Element* __restrict__ grad,
    float* __restrict__ partial,  // [blocks, TAPS, TO, FROM]
    Plane plane)
{
    extern __shared__ uint4 room[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int tiles_t = shares(plane.out_t, TILE_T), tiles_f = shares(plane.out_f, TILE_F);
    const int tiles = plane.batch * tiles_t * tiles_f;
    const auto fetch_tile = [&](int tile, int stage) {
        if (tile < tiles) {
            Element* const seen = reinterpret_cast<Element*>(room) + stage * STAGE;
            const Place first(tile, tiles_t, tiles_f, TILE_T, TILE_F);
            fetch<CHUNKS>(seen, x + (long long)first.image * plane.in_t * plane.in_f * FROM, first.t * ST - PAD_T,
                          first.f * SF - PAD_F, ROWS, COLUMNS, plane.in_t, plane.in_f);
            fetch<TO_CHUNKS>(seen + SEEN, grad + (long long)first.image * plane.out_t * plane.out_f * TO, first.t, first.f,
                             TILE_T, TILE_F, plane.out_t, plane.out_f);
        }
        end_of_group();
    };
    float sums[WARP_TAPS][2][FROM_TILES][4] = {};
    fetch_tile(blockIdx.x, 0);
    int stage = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, stage ^= 1) {
        fetch_tile(tile + gridDim.x, stage ^ 1);
        wait_for_groups<1>();
        __syncthreads();
        const Element* const seen = reinterpret_cast<Element*>(room) + stage * STAGE;
        const Element* const grads = seen + SEEN;
        // Rows beyond the end have no gradient.
        const int rows = min(TILE_T, plane.out_t - Place(tile, tiles_t, tiles_f, TILE_T, TILE_F).t);
        for (int part = 0; part < rows * 2; part++) {
            const int row = part / 2, from_f = part % 2 * 16;
            unsigned a[2][4];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int place = row * TILE_F + from_f + lane % 8 + lane / 16 * 8;
                load_turned(a[i], grads + chunk_at<4>(place * 4 + i * 2 + lane / 8 % 2) * 8);
            }
#pragma unroll
            for (int number = 0; number < WARP_TAPS; number++) {
                const int tap = warp + number * WARPS;
                const int place = (row * ST + tap / KF) * COLUMNS + (from_f + lane % 16) * SF + tap % KF;
                unsigned b[(FROM_TILES + 1) / 2][4];
#pragma unroll
                for (int i = 0; i < (FROM_TILES + 1) / 2; i++)
                    load_turned(b[i], seen + chunk_at<CHUNKS>(place * CHUNKS + (FROM == 8 ? 0 : i * 2 + lane / 16)) * 8);
#pragma unroll
                for (int m = 0; m < 2; m++)
#pragma unroll
                    for (int n = 0; n < FROM_TILES; n++)
                        multiply(sums[number][m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int number = 0; number < WARP_TAPS; number++)
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int n = 0; n < FROM_TILES; n++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int row = ((int)blockIdx.x * TAPS + warp + number * WARPS) * TO + m * 16 + half * 8 + lane / 4;
                    *reinterpret_cast<float2*>(partial + (long long)row * FROM + n * 8 + lane % 4 * 2) =
                        make_float2(sums[number][m][n][half * 2], sums[number][m][n][half * 2 + 1]);
                }
}

// To [TO][channels][KT][KF]. Blocks of 32 x 8: columns of `partial`, and shares of its blocks.
extern "C" __global__ void backward(
    const float* __restrict__ partial, Element* __restrict__ grad_weight, int blocks, int channels)
{
    __shared__ float parts[8][32];
    const int column = blockIdx.x * 32 + threadIdx.x;  // of [TAPS][TO][FROM], which is whole blocks
    float part = 0.0f;
    for (int block = threadIdx.y; block < blocks; block += 8) part += partial[(long long)block * TAPS * TO * FROM + column];
    parts[threadIdx.y][threadIdx.x] = part;
    __syncthreads();
    if (threadIdx.y != 0) return;
    float sum = 0.0f;
    for (int i = 0; i < 8; i++) sum += parts[i][threadIdx.x];
    const int from = column % FROM, to = column / FROM % TO, tap = column / FROM / TO;
    if (from < channels) grad_weight[(to * channels + from) * TAPS + tap] = narrow(sum);
}
