// gelu(x + bias), with GELU's approximation by tanh: with z = 1.59577 (u + 0.044715 u³), u times the logistic function of z.
//
// Blocks of 32 x 8: a warp has vectors side by side, a thread one of each of its rows.

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

// A thread's place. Past the end its rows are the last one again: it writes what that holds anyway. So nothing is asked
// between two rows, and the compiler loads the next one ahead.
struct Place {
    int column, row, rows, width;

    __device__ Place(int rows, int width) : rows(rows), width(width) {
        column = (blockIdx.x * 32 + threadIdx.x) * VECTOR;
        row = blockIdx.y * WARPS * EACH + threadIdx.y;
    }

    __device__ bool is_inside(int r) const { return row + r * WARPS < rows; }
    __device__ long long operator[](int r) const { return (long long)min(row + r * WARPS, rows - 1) * width + column; }
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

// The vectors of a thread's rows, as they lie in memory.
struct Rows {
    uint4 bits[EACH];

    __device__ Rows(const Element* from, const Place& at) {
#pragma unroll
        for (int r = 0; r < EACH; r++) bits[r] = *reinterpret_cast<const uint4*>(from + at[r]);
    }

    __device__ void get(int r, float (&values)[VECTOR]) const { load(reinterpret_cast<const Element*>(&bits[r]), values); }
};

extern "C" __global__ void __launch_bounds__(32 * WARPS) forward(
    const Element* __restrict__ x,      // [rows, width]
    const float* __restrict__ bias,     // [width]
    Element* __restrict__ out,
    int rows, int width)
{
    const Place at(rows, width);
    if (at.column >= width) return;
    const Rows xs(x, at);
    const Vector offset(bias + at.column);
#pragma unroll
    for (int r = 0; r < EACH; r++) {
        float values[VECTOR];
        xs.get(r, values);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) values[i] = gelu(values[i] + offset.values[i]);
        store(out + at[r], values);
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) backward(
    const Element* __restrict__ x, const float* __restrict__ bias, const Element* __restrict__ grad,
    Element* __restrict__ grad_x,
    float* __restrict__ partial,        // [blocks of rows, width]
    int rows, int width)
{
    __shared__ float shares[WARPS][VECTOR][32];
    const Place at(rows, width);
    float sums[VECTOR] = {};
    if (at.column < width) {
        const Rows xs(x, at), grads(grad, at);
        const Vector offset(bias + at.column);
#pragma unroll
        for (int r = 0; r < EACH; r++) {
            float u[VECTOR], g[VECTOR];
            xs.get(r, u);
            grads.get(r, g);
#pragma unroll
            for (int i = 0; i < VECTOR; i++) {
                g[i] *= slope(u[i] + offset.values[i]);
                sums[i] += at.is_inside(r) ? g[i] : 0.0f;
            }
            store(grad_x + at[r], g);
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
