// Forward: leaky(convolution + bias), and its distance from a target; backward: the gradient of the input.

constexpr int WARPS = 4, THREADS = 32 * WARPS;  // as in plane.cpp
constexpr int STEPS = FROM == 8 ? (KF + 1) / 2 : KF * 2;  // of 16 channels, along a row of taps
constexpr int WARP_ROWS = TILE_T / WARPS;  // each of two tiles of 16 places

// Weights as the forward pass takes them: [KT][STEPS][TO][16].
__device__ int forward_weight(int to, int from, int tap_t, int tap_f) {
    const int step = FROM == 8 ? tap_f / 2 : tap_f * 2 + from / 16, inner = FROM == 8 ? tap_f % 2 * 8 + from : from % 16;
    return chunk_at<2>(((tap_t * STEPS + step) * TO + to) * 2 + inner / 8) * 8 + inner % 8;
}

// And as the gradient of the input does: [KT][KF][TO][FROM].
__device__ int backward_weight(int to, int from, int tap_t, int tap_f) {
    const int row = (tap_t * KF + tap_f) * TO + to;
    return (FROM == 8 ? row : chunk_at<4>(row * 4 + from / 8)) * 8 + from % 8;
}

constexpr int FORWARD_WEIGHTS = KT * STEPS * TO * 16, BACKWARD_WEIGHTS = TAPS * TO * FROM;

// Both, one behind the other, from [TO][channels][KT][KF]; there may be fewer channels than `FROM`. A thread for each weight,
// zeros that are added included.
extern "C" __global__ void lay(const Element* __restrict__ weight, Element* __restrict__ laid, int channels) {
    constexpr int WHOLE_F = FROM == 8 ? KF + KF % 2 : KF;
    const int number = blockIdx.x * blockDim.x + threadIdx.x;
    const int tap_f = number % WHOLE_F, tap_t = number / WHOLE_F % KT;
    const int from = number / (WHOLE_F * KT) % FROM, to = number / (WHOLE_F * KT * FROM);
    if (to >= TO) return;
    const bool there = from < channels && tap_f < KF;
    const Element value = there ? weight[((to * channels + from) * KT + tap_t) * KF + tap_f] : (Element)0;
    laid[forward_weight(to, from, tap_t, tap_f)] = value;
    if (tap_f < KF) laid[FORWARD_WEIGHTS + backward_weight(to, from, tap_t, tap_f)] = value;
}

// Weights as they were laid, on their way to shared memory.
__device__ void fetch_weights(Element* to, const Element* __restrict__ laid, int elements) {
    for (int at = threadIdx.x * 8; at < elements; at += THREADS * 8) bring(to + at, laid + at, true);
}

extern "C" __global__ void __launch_bounds__(THREADS) forward(
    const Element* __restrict__ x,
    const Element* __restrict__ laid,    // weights
    const float* __restrict__ bias,      // [TO]
    const Element* __restrict__ target,  // as out, or none
    Element* __restrict__ out,
    float* __restrict__ partial,         // [blocks], with a target
    Plane plane, float slope)
{
    extern __shared__ uint4 room[];
    Element* const weights = reinterpret_cast<Element*>(room);
    Element* const seen = weights + FORWARD_WEIGHTS;
    fetch_weights(weights, laid, FORWARD_WEIGHTS);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, quad = lane % 4;
    // Of the matrices that a lane names the rows of: of places, and of output channels.
    const int place_row = lane % 16, place_half = lane / 16, to_row = lane % 8 + lane / 16 * 8, to_half = lane / 8 % 2;
    float biases[4][2];
#pragma unroll
    for (int i = 0; i < 8; i++) biases[i / 2][i % 2] = bias[i / 2 * 8 + quad * 2 + i % 2];
    const int tiles_t = shares(plane.out_t, TILE_T), tiles_f = shares(plane.out_f, TILE_F);
    float distance = 0.0f;
    for (int tile = blockIdx.x; tile < plane.batch * tiles_t * tiles_f; tile += gridDim.x) {
        const Place first(tile, tiles_t, tiles_f, TILE_T, TILE_F);
        __syncthreads();
        fetch<CHUNKS>(seen, x + (long long)first.image * plane.in_t * plane.in_f * FROM, first.t * ST - PAD_T,
                      first.f * SF - PAD_F, ROWS, COLUMNS, plane.in_t, plane.in_f);
        end_of_group();
        wait_for_groups<0>();
        __syncthreads();
        if (first.t + warp * WARP_ROWS >= plane.out_t) continue;
        float sums[WARP_ROWS * 2][4][4] = {};
        for (int tap_t = 0; tap_t < KT; tap_t++) {
#pragma unroll 2
            for (int step = 0; step < STEPS; step++) {
                unsigned b[2][4];
#pragma unroll
                for (int i = 0; i < 2; i++)
                    load_matrices(b[i], weights + chunk_at<2>(((tap_t * STEPS + step) * TO + i * 16 + to_row) * 2 + to_half) * 8);
#pragma unroll
                for (int m = 0; m < WARP_ROWS * 2; m++) {
                    const int row = (warp * WARP_ROWS + m / 2) * ST + tap_t, column = (m % 2 * 16 + place_row) * SF;
                    unsigned a[4];
                    load_matrices(a, seen + chunk_at<CHUNKS>((row * COLUMNS + column) * CHUNKS + step * 2 + place_half) * 8);
#pragma unroll
                    for (int n = 0; n < 4; n++) multiply(sums[m][n], a, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
                }
            }
        }
#pragma unroll
        for (int m = 0; m < WARP_ROWS * 2; m++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                Pair words[4];
#pragma unroll
                for (int n = 0; n < 4; n++) {
                    float2 both = make_float2(sums[m][n][half * 2] + biases[n][0], sums[m][n][half * 2 + 1] + biases[n][1]);
                    both.x = both.x > 0.0f ? both.x : slope * both.x;
                    both.y = both.y > 0.0f ? both.y : slope * both.y;
                    words[n] = narrow(both);
                }
                gather(words);
                const int t = first.t + warp * WARP_ROWS + m / 2, f = first.f + m % 2 * 16 + half * 8 + lane / 4;
                if (t >= plane.out_t || f >= plane.out_f) continue;
                const long long at = (((long long)first.image * plane.out_t + t) * plane.out_f + f) * TO + quad * 8;
                *reinterpret_cast<uint4*>(out + at) = make_uint4(words[0], words[1], words[2], words[3]);
                if (!target) continue;
                float wanted[VECTOR];
                load(target + at, wanted);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float2 made = widen(words[i]);
                    distance += fabsf(made.x - wanted[2 * i]) + fabsf(made.y - wanted[2 * i + 1]);
                }
            }
        }
    }
    if (!target) return;
    distance = block_sum<WARPS>(distance);
    if (threadIdx.x == 0) partial[blockIdx.x] = distance;
}

// Places of the input by what is left of them over the strides: each such grid sees taps of its own, at places that lie
// side by side in the output. Tiles are of such grids.
constexpr int GRID_T = 8, GRID_ROWS = GRID_T / WARPS;
constexpr int BELOW_T = (KT - 1 - PAD_T + ST - 1) / ST, ABOVE_T = (ST - 1 + PAD_T) / ST;
constexpr int BELOW_F = (KF - 1 - PAD_F + SF - 1) / SF, ABOVE_F = (SF - 1 + PAD_F) / SF;
constexpr int GRAD_ROWS = GRID_T + BELOW_T + ABOVE_T, GRAD_COLUMNS = TILE_F + BELOW_F + ABOVE_F;
constexpr int FROM_TILES = FROM / 8;

extern "C" __global__ void __launch_bounds__(THREADS) backward(
    const Element* __restrict__ grad,  // of the convolution, [batch, out_t, out_f, TO]
    const Element* __restrict__ laid, Element* __restrict__ grad_x, Plane plane)
{
    extern __shared__ uint4 room[];
    Element* const weights = reinterpret_cast<Element*>(room);
    Element* const seen = weights + BACKWARD_WEIGHTS;
    fetch_weights(weights, laid + FORWARD_WEIGHTS, BACKWARD_WEIGHTS);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, quad = lane % 4;
    const int place_row = lane % 16, place_half = lane / 16;
    const int tiles_t = shares(shares(plane.in_t, ST), GRID_T), tiles_f = shares(shares(plane.in_f, SF), TILE_F);
    for (int tile = blockIdx.x; tile < plane.batch * tiles_t * tiles_f; tile += gridDim.x) {
        const Place first(tile, tiles_t, tiles_f, GRID_T, TILE_F);
        __syncthreads();
        fetch<TO_CHUNKS>(seen, grad + (long long)first.image * plane.out_t * plane.out_f * TO, first.t - BELOW_T,
                         first.f - BELOW_F, GRAD_ROWS, GRAD_COLUMNS, plane.out_t, plane.out_f);
        end_of_group();
        wait_for_groups<0>();
        __syncthreads();
        if ((first.t + warp * GRID_ROWS) * ST >= plane.in_t) continue;
        for (int phase = 0; phase < ST * SF; phase++) {
            const int over_t = phase / SF, over_f = phase % SF;
            float sums[GRID_ROWS * 2][FROM_TILES][4] = {};
            for (int tap_t = (over_t + PAD_T) % ST; tap_t < KT; tap_t += ST) {
                const int row = warp * GRID_ROWS + BELOW_T + (over_t + PAD_T - tap_t) / ST;
                for (int tap_f = (over_f + PAD_F) % SF; tap_f < KF; tap_f += SF) {
                    const int column = place_row + BELOW_F + (over_f + PAD_F - tap_f) / SF;
                    const int tap = (tap_t * KF + tap_f) * TO;
#if FROM == 8
                    unsigned all[4];
                    load_turned(all, weights + (tap + lane) * 8);
#endif
#pragma unroll
                    for (int step = 0; step < 2; step++) {
#if FROM == 8
                        const unsigned b[1][4] = {{all[step * 2], all[step * 2 + 1], 0, 0}};
#else
                        unsigned b[2][4];
#pragma unroll
                        for (int i = 0; i < 2; i++)
                            load_turned(b[i], weights + chunk_at<4>((tap + step * 16 + lane % 16) * 4 + i * 2 + lane / 16) * 8);
#endif
#pragma unroll
                        for (int m = 0; m < GRID_ROWS * 2; m++) {
                            const int place = (row + m / 2) * GRAD_COLUMNS + m % 2 * 16 + column;
                            unsigned a[4];
                            load_matrices(a, seen + chunk_at<4>(place * 4 + step * 2 + place_half) * 8);
#pragma unroll
                            for (int n = 0; n < FROM_TILES; n++)
                                multiply(sums[m][n], a, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
                        }
                    }
                }
            }
#pragma unroll
            for (int m = 0; m < GRID_ROWS * 2; m++) {
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int t = (first.t + warp * GRID_ROWS + m / 2) * ST + over_t;
                    const int f = (first.f + m % 2 * 16 + half * 8 + lane / 4) * SF + over_f;
                    const bool there = t < plane.in_t && f < plane.in_f;
                    const long long place = ((long long)first.image * plane.in_t + t) * plane.in_f + f;
#if FROM == 8
                    if (there) put_pair(grad_x + place * 8, quad * 2, make_float2(sums[m][0][half * 2], sums[m][0][half * 2 + 1]));
#else
                    Pair words[4];
#pragma unroll
                    for (int n = 0; n < 4; n++) words[n] = narrow(make_float2(sums[m][n][half * 2], sums[m][n][half * 2 + 1]));
                    gather(words);
                    if (there)
                        *reinterpret_cast<uint4*>(grad_x + place * FROM + quad * 8) =
                            make_uint4(words[0], words[1], words[2], words[3]);
#endif
                }
            }
        }
    }
}
