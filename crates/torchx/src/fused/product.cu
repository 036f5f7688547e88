// What goes with a convolution as a matrix product: its weight as that product wants it, and the way back through a
// rectifier behind it. `TAPS` is set before this text.

constexpr int CHUNK = 512;  // of a filter's channels, for each block; as in convolution.cpp
constexpr int MOST = 16;    // weights of one launch; as in convolution.cpp
constexpr int FOUR = 4;     // floats in 16 bytes: channels are a multiple of as many

// Weights of several convolutions, and where they go: laid[o * filter_stride + tap * tap_stride + i] = weight[o][i][tap]
struct Weights {
    const float* weight[MOST];  // [filters, channels, TAPS]
    Element* laid[MOST];
    int channels[MOST], filter_stride[MOST], tap_stride[MOST];
    int end[MOST];              // of their blocks: one for each chunk of each filter
    int count;
};

extern "C" __global__ void lay(const __grid_constant__ Weights all) {
    __shared__ __align__(16) float chunk[CHUNK * TAPS];
    int mine = 0;
    while (mine + 1 < all.count && (int)blockIdx.x >= all.end[mine]) mine++;
    const int channels = all.channels[mine], tap_stride = all.tap_stride[mine], chunks = (channels + CHUNK - 1) / CHUNK;
    const int block = (int)blockIdx.x - (mine > 0 ? all.end[mine - 1] : 0);
    const int filter = block / chunks, first = block % chunks * CHUNK, count = min(CHUNK, channels - first);
    const float* from = all.weight[mine] + ((long long)filter * channels + first) * TAPS;
#pragma unroll 2
    for (int i = FOUR * threadIdx.x; i < count * TAPS; i += FOUR * blockDim.x)
        *reinterpret_cast<float4*>(chunk + i) = *reinterpret_cast<const float4*>(from + i);
    __syncthreads();
    Element* to = all.laid[mine] + (long long)filter * all.filter_stride[mine] + first;
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++)
        for (int i = 2 * threadIdx.x; i < count; i += 2 * blockDim.x)
            put_pair(to + (long long)tap * tap_stride, i, make_float2(chunk[i * TAPS + tap], chunk[(i + 1) * TAPS + tap]));
}

// The other way round, for gradients.
extern "C" __global__ void unlay(
    const Element* __restrict__ laid,
    float* __restrict__ weight,            // [filters, channels, TAPS]
    int channels, int filter_stride, int tap_stride)
{
    __shared__ __align__(16) float chunk[CHUNK * TAPS];
    const int filter = blockIdx.x, first = blockIdx.y * CHUNK, count = min(CHUNK, channels - first);
    const Element* from = laid + (long long)filter * filter_stride + first;
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++)
        for (int i = 2 * threadIdx.x; i < count; i += 2 * blockDim.x) {
            const float2 both = widen(pair_at(from + (long long)tap * tap_stride, i));
            chunk[i * TAPS + tap] = both.x;
            chunk[(i + 1) * TAPS + tap] = both.y;
        }
    __syncthreads();
    float* to = weight + ((long long)filter * channels + first) * TAPS;
#pragma unroll 2
    for (int i = FOUR * threadIdx.x; i < count * TAPS; i += FOUR * blockDim.x)
        *reinterpret_cast<float4*>(to + i) = *reinterpret_cast<const float4*>(chunk + i);
}

constexpr int DEPTH = 8, LANES = 32;  // a block's rows, and the most of its vectors in a row; as in convolution.cpp
constexpr int EACH = 8;               // rows of a thread, as in convolution.cpp

// Zeroes the gradient, in place, where the rectifier's output is zero, and sums its columns.
extern "C" __global__ void rectify(
    const Element* __restrict__ out,       // [rows, width]
    Element* grad,                         // [rows, width]
    float* __restrict__ partial,           // [blocks, width]
    int rows, int width)
{
    __shared__ float shares[DEPTH][LANES][VECTOR];
    const int column = (blockIdx.y * blockDim.x + threadIdx.x) * VECTOR;
    float sums[VECTOR] = {};
#pragma unroll 4
    for (int each = 0; each < EACH; each++) {
        const int row = (blockIdx.x * EACH + each) * DEPTH + threadIdx.y;
        if (row >= rows || column >= width) break;
        const long long at = (long long)row * width + column;
        float values[VECTOR], grads[VECTOR];
        load(out + at, values);
        load(grad + at, grads);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            if (!(values[i] > 0.0f)) grads[i] = 0.0f;
            sums[i] += grads[i];
        }
        store(grad + at, grads);
    }
#pragma unroll
    for (int i = 0; i < VECTOR; i++) shares[threadIdx.y][threadIdx.x][i] = sums[i];
    __syncthreads();
    if (threadIdx.y != 0 || column >= width) return;
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        float sum = 0.0f;
        for (int y = 0; y < DEPTH; y++) sum += shares[y][threadIdx.x][i];
        partial[(long long)blockIdx.x * width + column + i] = sum;
    }
}
