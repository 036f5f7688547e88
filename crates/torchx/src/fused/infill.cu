// The two inputs of a product that makes a decoder's input: rows of noisy and of given frames, and what is added to it.

// rows[r] = noisy * (1 - given), clean * given, given, 1, zeros; sum[r] = content * said. Blocks of 32 x 8: a row for each y.
extern "C" __global__ void forward(
    const float* __restrict__ noisy, const float* __restrict__ clean,  // [count, bands]
    const float* __restrict__ given, const float* __restrict__ said,   // [count]
    const Element* __restrict__ content,  // [own, width]
    Element* __restrict__ rows,           // [count, columns]
    Element* __restrict__ sum,            // [count, width]
    int count, int own, int bands, int columns, int width)
{
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= count) return;
    const float there = given[row], spoken = said[row];
    for (int column = 2 * threadIdx.x; column < columns; column += 64) {
        float2 values = make_float2(0.0f, 0.0f);
        if (column < 2 * bands) {
            // A frame that is not looked at may hold anything.
            const bool first = column < bands;
            const float share = first ? 1.0f - there : there;
            const float* from = (first ? noisy : clean) + (long long)row * bands + column - (first ? 0 : bands);
            const float2 pair = *reinterpret_cast<const float2*>(from);
            if (share != 0.0f) values = make_float2(pair.x * share, pair.y * share);
        } else if (column == 2 * bands) {
            values = make_float2(there, 1.0f);
        }
        put_pair(rows + (long long)row * columns, column, values);
    }
    for (int column = VECTOR * threadIdx.x; column < width; column += 32 * VECTOR) {
        float values[VECTOR];
        load(content + (long long)(row % own) * width + column, values);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) values[i] *= spoken;
        store(sum + (long long)row * width + column, values);
    }
}

// grad_content = sum over copies of grad * said.
extern "C" __global__ void backward(
    const Element* __restrict__ grad,     // [count, width]
    const float* __restrict__ said,       // [count]
    Element* __restrict__ grad_content,   // [own, width]
    int count, int own, int width)
{
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= own) return;
    for (int column = VECTOR * threadIdx.x; column < width; column += 32 * VECTOR) {
        float sums[VECTOR] = {};
        for (int copy = row; copy < count; copy += own) {
            const float spoken = said[copy];
            float values[VECTOR];
            load(grad + (long long)copy * width + column, values);
#pragma unroll
            for (int i = 0; i < VECTOR; i++) sums[i] += values[i] * spoken;
        }
        store(grad_content + (long long)row * width + column, sums);
    }
}
