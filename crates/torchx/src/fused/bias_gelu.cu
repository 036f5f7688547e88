// gelu(x + bias), with GELU's approximation by tanh.

// tanh of 0.79788 (u + 0.044715 u³). By the exponential: its error is below 1e-6, and both ends come out right.
__device__ float inner_tanh(float u) {
    const float inner = 0.7978845608f * (u + 0.044715f * u * u * u);
    return 1.0f - 2.0f / (1.0f + __expf(2.0f * inner));
}

__device__ float gelu(float u) { return 0.5f * u * (1.0f + inner_tanh(u)); }

__device__ float slope(float u) {
    const float t = inner_tanh(u);
    return 0.5f * (1.0f + t) + 0.5f * u * (1.0f - t * t) * 0.7978845608f * (1.0f + 3.0f * 0.044715f * u * u);
}

extern "C" __global__ void forward(
    const Element* __restrict__ x,      // [rows, width]
    const float* __restrict__ bias,     // [width]
    Element* __restrict__ out,
    int rows, int width)
{
    const int vectors = width / VECTOR, index = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = index / vectors, column = index % vectors * VECTOR;
    if (row >= rows) return;
    const long long at = (long long)row * width + column;
    float values[VECTOR];
    load(x + at, values);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) values[i] = gelu(values[i] + bias[column + i]);
    store(out + at, values);
}

// `STRETCH` tiles for each block, so that the sums are few.
constexpr int STRETCH = 2;

extern "C" __global__ void backward(
    const Element* __restrict__ x, const float* __restrict__ bias, const Element* __restrict__ grad,
    Element* __restrict__ grad_x,
    float* __restrict__ partial,        // [blocks, width]
    int rows, int width)
{
    const int column = 2 * (blockIdx.y * blockDim.x + threadIdx.x);
    if (column >= width) return;
    const float2 offset = make_float2(bias[column], bias[column + 1]);
    float2 sum = make_float2(0.0f, 0.0f);
    for (int tile = 0; tile < STRETCH; tile++) {
        const int first = (blockIdx.x * STRETCH + tile) * TILE;
        Pair xs[TILE], grads[TILE];
#pragma unroll
        for (int r = 0; r < TILE; r++) {
            const long long at = (long long)min(first + r, rows - 1) * width;
            xs[r] = pair_at(x + at, column);
            grads[r] = pair_at(grad + at, column);
        }
#pragma unroll
        for (int r = 0; r < TILE; r++) {
            const float2 u = widen(xs[r]);
            float2 g = widen(grads[r]);
            g = make_float2(g.x * slope(u.x + offset.x), g.y * slope(u.y + offset.y));
            if (first + r >= rows) continue;
            add_product(sum, g, make_float2(1.0f, 1.0f));
            put_pair(grad_x + (long long)(first + r) * width, column, g);
        }
    }
    *reinterpret_cast<float2*>(partial + (long long)blockIdx.x * width + column) = sum;
}
