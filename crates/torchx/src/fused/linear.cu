// Sums of the columns of a matrix: the gradient of a linear layer's bias.

constexpr int ROWS = 64;  // of a block

// Threads have two columns each.
extern "C" __global__ void forward(
    const Element* __restrict__ x,      // [rows, width]
    float* __restrict__ partial,        // [blocks, width]
    int rows, int width)
{
    const int column = 2 * (blockIdx.y * blockDim.x + threadIdx.x), first = blockIdx.x * ROWS;
    if (column >= width) return;
    float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll 16
    for (int r = 0; r < ROWS; r++) {
        if (first + r >= rows) break;
        const float2 value = widen(pair_at(x + (long long)(first + r) * width, column));
        sum.x += value.x;
        sum.y += value.y;
    }
    *reinterpret_cast<float2*>(partial + (long long)blockIdx.x * width + column) = sum;
}

// The second stage, in the kind of the bias.
extern "C" __global__ void backward(
    const float* __restrict__ partial,  // [blocks, width]
    Element* __restrict__ sums,         // [width]
    int blocks, int width)
{
    const int column = blockIdx.x * 32 + threadIdx.x;
    const float sum = sum_of_tiles(partial, blocks, width, column);
    if (threadIdx.y == 0 && column < width) sums[column] = narrow(sum);
}
