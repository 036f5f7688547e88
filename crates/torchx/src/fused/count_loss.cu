// Half the deviance of Poisson counts from their predicted logarithms. So few numbers that one block adds them all.

// One block of 1024.
extern "C" __global__ void __launch_bounds__(1024) forward(
    const float* __restrict__ predicted, const float* __restrict__ counts, const float* __restrict__ mask,  // [rows]
    float* __restrict__ loss, float* __restrict__ share,  // 0-d: the loss, and what a row's part counts
    int rows)
{
    float surprise = 0.0f, total = 0.0f;
#pragma unroll 4
    for (int row = threadIdx.x; row < rows; row += 1024) {
        const float count = counts[row], guess = predicted[row];
        surprise += (count * (logf(fmaxf(count, 1.0f)) - guess) - count + expf(guess)) * mask[row];
        total += count;
    }
    surprise = block_sum<32>(surprise);
    total = block_sum<32>(total);
    if (threadIdx.x != 0) return;
    total = fmaxf(total, 1.0f);
    *loss = surprise / total;
    *share = 1.0f / total;
}

extern "C" __global__ void backward(
    const float* __restrict__ predicted, const float* __restrict__ counts, const float* __restrict__ mask,  // [rows]
    const float* __restrict__ share, const float* __restrict__ grad,  // 0-d
    float* __restrict__ grad_predicted,                               // [rows]
    int rows)
{
    const int row = blockIdx.x * 256 + threadIdx.x;
    if (row < rows) grad_predicted[row] = (expf(predicted[row]) - counts[row]) * mask[row] * (*share * *grad);
}
