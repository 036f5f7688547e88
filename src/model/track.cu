// Small tables of an axis, each group in one launch instead of one for each operation.

// A row of the one-hot matrix, and the mask, in the kind of the activations. One thread for each element of the matrix.
extern "C" __global__ void track(
    const int* __restrict__ owner,      // [rows]
    const float* __restrict__ mask,     // [rows]
    void* __restrict__ narrow_mask,     // [rows], out: f32 or bf16
    void* __restrict__ one_hot,         // [rows, owners], out: the same
    int rows, int owners, int is_bf16)
{
    const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)rows * owners) return;
    const int row = (int)(at / owners), column = (int)(at % owners);
    const float one = owner[row] == column ? 1.0f : 0.0f;
    // Zero and one have no bits below those of a bf16.
    if (is_bf16) {
        static_cast<unsigned short*>(one_hot)[at] = (unsigned short)(__float_as_uint(one) >> 16);
        if (column == 0) static_cast<unsigned short*>(narrow_mask)[row] = (unsigned short)(__float_as_uint(mask[row]) >> 16);
    } else {
        static_cast<float*>(one_hot)[at] = one;
        if (column == 0) static_cast<float*>(narrow_mask)[row] = mask[row];
    }
}

// Cosine and sine of every position's angles.
extern "C" __global__ void rotary(
    const int* __restrict__ position,   // [rows]
    float* __restrict__ cos_table, float* __restrict__ sin_table,  // [rows, half], out
    int rows, int half, float slope)
{
    const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (long long)rows * half) return;
    const float angle = (float)position[at / half] * expf((float)(at % half) * slope);
    cos_table[at] = cosf(angle);
    sin_table[at] = sinf(angle);
}

// The axis of pairs.
extern "C" __global__ void halve(
    const int* __restrict__ position, const int* __restrict__ owner, const float* __restrict__ mask,     // [rows]
    const int* __restrict__ borders, const int* __restrict__ starts, const int* __restrict__ lens,
    int* __restrict__ half_position, int* __restrict__ half_owner, float* __restrict__ half_mask,        // [(rows + 1) / 2]
    int* __restrict__ half_borders, int* __restrict__ half_starts, int* __restrict__ half_lens,
    int rows, int border_count, int capacity)
{
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < (rows + 1) / 2) {
        half_position[at] = position[2 * at] / 2;
        half_owner[at] = owner[2 * at];
        half_mask[at] = mask[2 * at];
    }
    if (at < border_count) half_borders[at] = (borders[at] + 1) / 2;
    if (at < capacity) {
        half_starts[at] = (starts[at] + 1) / 2;
        half_lens[at] = (lens[at] + 1) / 2;
    }
}
