// gelu(x + bias), with GELU's approximation by tanh: with z = 1.59577 (u + 0.044715 u³), u times the logistic function of z.
//
// Blocks of 32 x 8: a warp has vectors side by side, a thread one of each of its rows, all of them in flight at once.

constexpr int WARPS = 8;
constexpr int EACH = 4;  // rows of a thread

// One instruction each: what is below the normal numbers becomes zero.
__device__ float power_of_two(float exponent) {
#ifdef __CUDA_ARCH__
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(exponent));
    return exponent;
#else
    return exp2f(exponent);
#endif
}

__device__ float one_over(float value) {
#ifdef __CUDA_ARCH__
    asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(value));
    return value;
#else
    return 1.0f / value;
#endif
}

// exp(-z), by a power of two; kept finite.
__device__ float exp_of_inner(float u) {
    return power_of_two(fminf(u * (-2.3022082f - 0.10294324f * u * u), 115.0f));
}

__device__ float gelu(float u) { return u * one_over(1.0f + exp_of_inner(u)); }

__device__ float slope(float u) {
    const float e = exp_of_inner(u), share = one_over(1.0f + e);
    return share * (1.0f + e * share * u * (1.5957691f + 0.21406445f * u * u));
}

// A thread's place: its column, and its first row; its rows are `WARPS` apart.
struct Place {
    int column = (blockIdx.x * 32 + threadIdx.x) * VECTOR, row = blockIdx.y * WARPS * EACH + threadIdx.y;
};

struct Vector {
    float values[VECTOR];

    __device__ explicit Vector(const float* from) {
#pragma unroll
        for (int i = 0; i < VECTOR; i += 4) {
            const float4 four = *reinterpret_cast<const float4*>(from + i);
            values[i] = four.x, values[i + 1] = four.y, values[i + 2] = four.z, values[i + 3] = four.w;
        }
    }
};

// The vectors of a thread's rows, as they lie in memory; past the end the last row again.
struct Rows {
    uint4 bits[EACH];

    __device__ Rows(const Element* from, const Place& at, int rows, int width) {
#pragma unroll
        for (int r = 0; r < EACH; r++)
            bits[r] = *reinterpret_cast<const uint4*>(
                from + (long long)min(at.row + r * WARPS, rows - 1) * width + at.column);
    }

    __device__ void get(int r, float (&values)[VECTOR]) const { load(reinterpret_cast<const Element*>(&bits[r]), values); }
};

extern "C" __global__ void __launch_bounds__(32 * WARPS) forward(
    const Element* __restrict__ x,      // [rows, width]
    const float* __restrict__ bias,     // [width]
    Element* __restrict__ out,
    int rows, int width)
{
    const Place at;
    if (at.column >= width) return;
    const Rows xs(x, at, rows, width);
    const Vector offset(bias + at.column);
#pragma unroll
    for (int r = 0; r < EACH; r++) {
        const int row = at.row + r * WARPS;
        if (row >= rows) return;
        float values[VECTOR];
        xs.get(r, values);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) values[i] = gelu(values[i] + offset.values[i]);
        store(out + (long long)row * width + at.column, values);
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) backward(
    const Element* __restrict__ x, const float* __restrict__ bias, const Element* __restrict__ grad,
    Element* __restrict__ grad_x,
    float* __restrict__ partial,        // [blocks of rows, width]
    int rows, int width)
{
    __shared__ float shares[WARPS][VECTOR][32];
    const Place at;
    float sums[VECTOR] = {};
    if (at.column < width) {
        const Rows xs(x, at, rows, width), grads(grad, at, rows, width);
        const Vector offset(bias + at.column);
#pragma unroll
        for (int r = 0; r < EACH; r++) {
            const int row = at.row + r * WARPS;
            if (row >= rows) break;
            float u[VECTOR], g[VECTOR];
            xs.get(r, u);
            grads.get(r, g);
#pragma unroll
            for (int i = 0; i < VECTOR; i++) {
                g[i] *= slope(u[i] + offset.values[i]);
                sums[i] += g[i];
            }
            store(grad_x + (long long)row * width + at.column, g);
        }
    }
#pragma unroll
    for (int i = 0; i < VECTOR; i++) shares[threadIdx.y][i][threadIdx.x] = sums[i];
    __syncthreads();
    const int mine = threadIdx.y * 32 + threadIdx.x, column = blockIdx.x * 32 * VECTOR + mine;
    if (mine >= 32 * VECTOR || column >= width) return;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < WARPS; i++) sum += shares[i][mine % VECTOR][mine / VECTOR];
    partial[(long long)blockIdx.y * width + column] = sum;
}
