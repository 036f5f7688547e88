// Adaptive layer norm: norm(x) * (1 + scale[owner]) + shift[owner]. One warp for each row, the row in registers; mean
// and variance are computed again in the backward pass, which reads the row anyway. `WIDTH` is set before this text.
//
// What x is besides, the residual beside the norm, sends its gradient through here: added in registers, it costs a reading,
// where a kernel of its own would read and write everything once more.

constexpr int WARPS = 8;

extern "C" __global__ void __launch_bounds__(32 * WARPS) forward(
    const Element* __restrict__ x,      // [rows, WIDTH]
    const Element* __restrict__ table,  // [utterances + 1, 2, WIDTH]: scale and shift; rows `stride` apart
    const int* __restrict__ owner,      // [rows]
    Element* __restrict__ out,          // [rows, WIDTH]
    int rows, int utterances, int stride)
{
    const int row = blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= rows) return;
    const long long mine = owner_of(owner, row, rows, utterances);
    Row values, scales, shifts;
    read(x + (long long)row * WIDTH, values);
    read(table + mine * stride, scales);
    read(table + mine * stride + WIDTH, shifts);
    float mean;
    normalise(values, mean);
#pragma unroll
    for (int v = 0; v < GRAINS; v++)
#pragma unroll
        for (int i = 0; i < GRAIN; i++) values[v][i] = values[v][i] * (1.0f + scales[v][i]) + shifts[v][i];
    write(out + (long long)row * WIDTH, values);
}

// Warps of the backward pass, as in fused.cpp, and blocks that a multiprocessor holds at once: those of all tiles, mostly.
constexpr int TILE_WARPS = 4;
constexpr int BLOCKS = sizeof(Element) == 4 || GRAINS * GRAIN > 16 ? 1 : GRAINS * GRAIN > 10 ? 4 : 5;

// One block for each tile, run by run: a run is rows of one utterance, or of none. Each warp takes some of its rows, the
// next one on its way meanwhile, and keeps their sums in registers. With n = norm(x) and h = grad * (1 + scale), the
// gradient of a row is inverse * (h - mean(h) - n * mean(h * n)).
extern "C" __global__ void __launch_bounds__(32 * TILE_WARPS, BLOCKS) backward(
    const Element* __restrict__ x, const Element* __restrict__ table, const Element* __restrict__ grad,
    const Element* __restrict__ beside,  // the gradient of x besides, or null
    const int* __restrict__ owner,
    Element* __restrict__ grad_x,
    float* __restrict__ partial,        // [tiles + utterances, 2, WIDTH]: of scale, of shift
    int rows, int utterances, int stride)
{
    __shared__ __align__(16) float shares[TILE_WARPS][2 * WIDTH];
    const int first = blockIdx.x * TILE, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int mine = owner_of(owner, first + lane % TILE, rows, utterances);
    const int next = __shfl_down_sync(0xffffffffu, mine, 1);
    const unsigned ends = __ballot_sync(0xffffffffu, lane == TILE - 1 || next != mine);  // of runs
    for (int begin = 0, end; begin < TILE; begin = end) {
        end = begin + __ffs((int)(ends >> begin));
        const int run = __shfl_sync(0xffffffffu, mine, begin);
        int r = begin + warp;
        if (run >= utterances) {
            const Row zeros = {};
            for (; r < end && first + r < rows; r += TILE_WARPS) write(grad_x + (long long)(first + r) * WIDTH, zeros);
            continue;
        }
        Packed packed_x, packed_grad, packed_beside, packed_scale;
        Row scales, shifts;
        clear(scales);
        clear(shifts);
        fetch(table + (long long)run * stride, packed_scale);
        if (r < end) {
            fetch(x + (long long)(first + r) * WIDTH, packed_x);
            fetch(grad + (long long)(first + r) * WIDTH, packed_grad);
        }
#pragma unroll 1
        for (; r < end; r += TILE_WARPS) {
            const long long at = (long long)(first + r) * WIDTH;
            if (beside) fetch(beside + at, packed_beside);
            Row n, h, open;
            unpack(packed_x, n);
            unpack(packed_grad, h);
            if (r + TILE_WARPS < end) {
                fetch(x + at + TILE_WARPS * WIDTH, packed_x);
                fetch(grad + at + TILE_WARPS * WIDTH, packed_grad);
            }
            float mean, sum = 0.0f, dot = 0.0f;
            const float inverse = normalise(n, mean);
            unpack(packed_scale, open);
#pragma unroll
            for (int v = 0; v < GRAINS; v++)
#pragma unroll
                for (int i = 0; i < GRAIN; i++) {
                    scales[v][i] += h[v][i] * n[v][i];
                    shifts[v][i] += h[v][i];
                    h[v][i] *= 1.0f + open[v][i];
                    sum += h[v][i];
                    dot += h[v][i] * n[v][i];
                }
            sum = warp_sum(sum) / WIDTH;
            dot = warp_sum(dot) / WIDTH;
#pragma unroll
            for (int v = 0; v < GRAINS; v++)
#pragma unroll
                for (int i = 0; i < GRAIN; i++) h[v][i] = inverse * (h[v][i] - sum - n[v][i] * dot);
            if (beside) {
                unpack(packed_beside, n);
#pragma unroll
                for (int v = 0; v < GRAINS; v++)
#pragma unroll
                    for (int i = 0; i < GRAIN; i++) h[v][i] += n[v][i];
            }
            write(grad_x + at, h);
        }
        __syncthreads();  // before the shares of the last run are gone
#pragma unroll
        for (int v = 0; v < GRAINS; v++) {
            if (!is_inside(v)) continue;
#pragma unroll
            for (int i = 0; i < GRAIN; i += 2) {
                float* share = shares[warp] + column_of(v) + i;
                *reinterpret_cast<float2*>(share) = make_float2(scales[v][i], scales[v][i + 1]);
                *reinterpret_cast<float2*>(share + WIDTH) = make_float2(shifts[v][i], shifts[v][i + 1]);
            }
        }
        __syncthreads();
        float* slot = partial + (long long)(blockIdx.x + run) * 2 * WIDTH;
        for (int column = 4 * threadIdx.x; column < 2 * WIDTH; column += 4 * 32 * TILE_WARPS) {
            float4 sum = *reinterpret_cast<const float4*>(shares[0] + column);
#pragma unroll
            for (int i = 1; i < TILE_WARPS; i++) {
                const float4 more = *reinterpret_cast<const float4*>(shares[i] + column);
                sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
            }
            *reinterpret_cast<float4*>(slot + column) = sum;
        }
    }
}
