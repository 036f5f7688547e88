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
    for (int v = 0; v < VECTORS; v++)
#pragma unroll
        for (int i = 0; i < VECTOR; i++) values[v][i] = values[v][i] * (1.0f + scales[v][i]) + shifts[v][i];
    write(out + (long long)row * WIDTH, values);
}

// The gradient of one row: with n = norm(x) and h = grad * (1 + scale), inverse * (h - mean(h) - n * mean(h * n)).
__device__ void row_gradient(const Element* x, const Element* scale, const Element* grad, const Element* beside,
                             Element* grad_x, float& mean, float& inverse) {
    Row n, h, scales;
    read(x, n);
    read(grad, h);
    read(scale, scales);
    inverse = normalise(n, mean);
    float sum = 0.0f, dot = 0.0f;
#pragma unroll
    for (int v = 0; v < VECTORS; v++)
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            h[v][i] *= 1.0f + scales[v][i];
            sum += h[v][i];
            dot += h[v][i] * n[v][i];
        }
    sum = warp_sum(sum) / WIDTH;
    dot = warp_sum(dot) / WIDTH;
#pragma unroll
    for (int v = 0; v < VECTORS; v++)
#pragma unroll
        for (int i = 0; i < VECTOR; i++) h[v][i] = inverse * (h[v][i] - sum - n[v][i] * dot);
    if (beside) {
        read(beside, n);
#pragma unroll
        for (int v = 0; v < VECTORS; v++)
#pragma unroll
            for (int i = 0; i < VECTOR; i++) h[v][i] += n[v][i];
    }
    write(grad_x, h);
}

// One block for each tile: its rows by warps, then its columns by threads, which find the tile in L1.
extern "C" __global__ void __launch_bounds__(32 * WARPS) backward(
    const Element* __restrict__ x, const Element* __restrict__ table, const Element* __restrict__ grad,
    const Element* __restrict__ beside,  // the gradient of x besides, or null
    const int* __restrict__ owner,
    Element* __restrict__ grad_x,
    float* __restrict__ partial,        // [tiles + utterances, 2, WIDTH]: of scale, of shift
    int rows, int utterances, int stride)
{
    __shared__ float means[TILE], inverses[TILE];
    __shared__ int owners[TILE];
    const int first = blockIdx.x * TILE;
    for (int r = threadIdx.x / 32; r < TILE; r += WARPS) {
        const int row = first + r;
        const int mine = owner_of(owner, row, rows, utterances);
        float mean = 0.0f, inverse = 0.0f;
        const long long at = (long long)row * WIDTH;
        if (row < rows && mine < utterances) {
            row_gradient(x + at, table + (long long)mine * stride, grad + at, beside ? beside + at : nullptr, grad_x + at,
                         mean, inverse);
        } else if (row < rows) {
            const Row zeros = {};
            write(grad_x + at, zeros);
        }
        if (threadIdx.x % 32 == 0) means[r] = mean, inverses[r] = inverse, owners[r] = mine;
    }
    __syncthreads();
    for (int column = 2 * threadIdx.x; column < WIDTH; column += 2 * blockDim.x) {
        Pair xs[TILE], grads[TILE];
#pragma unroll
        for (int r = 0; r < TILE; r++) {
            const long long at = (long long)min(first + r, rows - 1) * WIDTH;
            xs[r] = pair_at(x + at, column);
            grads[r] = pair_at(grad + at, column);
        }
        float2 scales = make_float2(0.0f, 0.0f), shifts = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int r = 0; r < TILE; r++) {
            const float2 value = widen(xs[r]), g = widen(grads[r]);
            const float2 n = make_float2((value.x - means[r]) * inverses[r], (value.y - means[r]) * inverses[r]);
            add_product(scales, g, n);
            add_product(shifts, g, make_float2(1.0f, 1.0f));
            if (r + 1 < TILE && owners[r + 1] == owners[r]) continue;
            if (owners[r] < utterances) {
                float* slot = partial + (long long)(blockIdx.x + owners[r]) * 2 * WIDTH;
                *reinterpret_cast<float2*>(slot + column) = scales;
                *reinterpret_cast<float2*>(slot + WIDTH + column) = shifts;
            }
            scales = shifts = make_float2(0.0f, 0.0f);
        }
    }
}
