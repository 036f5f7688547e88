// Mean of squared errors over the rows that a mask counts, less those that another takes away. Two stages: sums of blocks,
// then of these.

constexpr int LOSS_BLOCKS = 264;  // two for each multiprocessor of an H200; on any other GPU the same sums

__device__ float counted(const float* mask, const float* except, int row) {
    return except ? mask[row] - except[row] : mask[row];
}

__device__ void load_target(const float* from, float (&values)[VECTOR]) {
#pragma unroll
    for (int i = 0; i < VECTOR; i += 4) {
        const float4 four = *reinterpret_cast<const float4*>(from + i);
        values[i] = four.x, values[i + 1] = four.y, values[i + 2] = four.z, values[i + 3] = four.w;
    }
}

extern "C" __global__ void __launch_bounds__(256) forward(
    const Element* __restrict__ guess,  // [rows, width]
    const float* __restrict__ target,   // [rows, width]
    const float* __restrict__ mask,     // [rows]
    const float* __restrict__ except,   // [rows], or null
    float* __restrict__ partial,        // [2, LOSS_BLOCKS]: errors, rows
    int rows, int width)
{
    const int vectors = width / VECTOR;
    float error = 0.0f, count = 0.0f;
    for (long long at = (long long)blockIdx.x * 256 + threadIdx.x; at < (long long)rows * vectors; at += 256 * LOSS_BLOCKS) {
        const int row = (int)(at / vectors);
        const float weight = counted(mask, except, row);
        float guessed[VECTOR], wanted[VECTOR], sum = 0.0f;
        load(guess + at * VECTOR, guessed);
        load_target(target + at * VECTOR, wanted);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) sum += (guessed[i] - wanted[i]) * (guessed[i] - wanted[i]);
        error += sum * weight;
        if (at % vectors == 0) count += weight;
    }
    error = block_sum<8>(error);
    count = block_sum<8>(count);
    if (threadIdx.x == 0) partial[blockIdx.x] = error, partial[LOSS_BLOCKS + blockIdx.x] = count;
}

// One block.
extern "C" __global__ void __launch_bounds__(256) finish(
    const float* __restrict__ partial,  // [2, LOSS_BLOCKS]
    float* __restrict__ loss,           // 0-d
    float* __restrict__ share,          // 0-d: what an element's squared error counts
    int width, float factor)
{
    float error = 0.0f, count = 0.0f;
    for (int i = threadIdx.x; i < LOSS_BLOCKS; i += 256) error += partial[i], count += partial[LOSS_BLOCKS + i];
    error = block_sum<8>(error);
    count = block_sum<8>(count);
    if (threadIdx.x != 0) return;
    const float elements = fmaxf(count, 1.0f) * width;
    *loss = error / elements * factor;
    *share = factor / elements;
}

extern "C" __global__ void __launch_bounds__(256) backward(
    const Element* __restrict__ guess, const float* __restrict__ target,  // [rows, width]
    const float* __restrict__ mask, const float* __restrict__ except,     // [rows]
    const float* __restrict__ share, const float* __restrict__ grad,      // 0-d
    Element* __restrict__ grad_guess,                                     // [rows, width]
    int rows, int width)
{
    const int vectors = width / VECTOR;
    const long long at = (long long)blockIdx.x * 256 + threadIdx.x;
    if (at >= (long long)rows * vectors) return;
    const float weight = 2.0f * *share * *grad * counted(mask, except, (int)(at / vectors));
    float guessed[VECTOR], wanted[VECTOR];
    load(guess + at * VECTOR, guessed);
    load_target(target + at * VECTOR, wanted);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) guessed[i] = (guessed[i] - wanted[i]) * weight;
    store(grad_guess + at * VECTOR, guessed);
}
