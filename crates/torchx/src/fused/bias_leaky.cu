// leaky(x + bias), and where `MATCHED` is set, how far that lies from a target. Rows hold a power of two of vectors, at
// most `THREADS`, so that a thread meets the same columns all along.

constexpr int THREADS = 256;  // as in fused.cpp
// Vectors that a thread of the backward pass takes, as in fused.cpp: more of them make fewer sums.
constexpr int STRETCH = 16;

// The value as it is stored.
__device__ float rounded(float value) {
#ifdef BF16
    return __uint_as_float((unsigned)narrow(value) << 16);
#else
    return value;
#endif
}

// The sum over the block's threads, for its first one.
__device__ float sum_of_block(float share) {
    __shared__ float shares[THREADS];
    shares[threadIdx.x] = share;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) shares[threadIdx.x] += shares[threadIdx.x + half];
    }
    return shares[0];
}

extern "C" __global__ void forward(
    const Element* __restrict__ x,       // [vectors * VECTOR]
    const float* __restrict__ bias,      // [width]
    const Element* __restrict__ target,  // as x
    Element* __restrict__ out,
    float* __restrict__ partial,         // [blocks]
    int vectors, int width, float slope)
{
    const int index = blockIdx.x * THREADS + threadIdx.x;
    float distance = 0.0f;
    if (index < vectors) {
        const long long at = (long long)index * VECTOR;
        const int column = index % (width / VECTOR) * VECTOR;
        float values[VECTOR];
        load(x + at, values);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            const float sum = values[i] + bias[column + i];
            values[i] = sum > 0.0f ? sum : slope * sum;
        }
        store(out + at, values);
#ifdef MATCHED
        float wanted[VECTOR];
        load(target + at, wanted);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) distance += fabsf(rounded(values[i]) - wanted[i]);
#endif
    }
#ifdef MATCHED
    distance = sum_of_block(distance);
    if (threadIdx.x == 0) partial[blockIdx.x] = distance;
#endif
}

// From the output, whose sign is that of the input: so the input is not kept.
extern "C" __global__ void backward(
    const Element* __restrict__ out, const Element* __restrict__ target, const Element* __restrict__ grad,
    const float* __restrict__ grad_distance,  // [1]
    Element* __restrict__ grad_x,
    float* __restrict__ partial,              // [blocks, width], or none: the bias learns nothing
    int vectors, int width, float slope)
{
    float sums[VECTOR] = {};
#ifdef MATCHED
    const float pull = *grad_distance / ((float)vectors * VECTOR);
#endif
#pragma unroll 4
    for (int step = 0; step < STRETCH; step++) {
        const int index = (blockIdx.x * STRETCH + step) * THREADS + threadIdx.x;
        if (index >= vectors) break;
        const long long at = (long long)index * VECTOR;
        float values[VECTOR], grads[VECTOR];
        load(out + at, values);
        load(grad + at, grads);
#ifdef MATCHED
        float wanted[VECTOR];
        load(target + at, wanted);
#pragma unroll
        for (int i = 0; i < VECTOR; i++)
            grads[i] += values[i] > wanted[i] ? pull : values[i] < wanted[i] ? -pull : 0.0f;
#endif
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            if (!(values[i] > 0.0f)) grads[i] *= slope;
            sums[i] += grads[i];
        }
        store(grad_x + at, grads);
    }
    if (!partial) return;
    __shared__ float shares[THREADS][VECTOR + 1];
#pragma unroll
    for (int i = 0; i < VECTOR; i++) shares[threadIdx.x][i] = sums[i];
    __syncthreads();
    const int across = width / VECTOR;
    for (int column = threadIdx.x; column < width; column += THREADS) {
        float sum = 0.0f;
        for (int thread = column / VECTOR; thread < THREADS; thread += across) sum += shares[thread][column % VECTOR];
        partial[(long long)blockIdx.x * width + column] = sum;
    }
}
