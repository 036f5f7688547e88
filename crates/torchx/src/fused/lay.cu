// Lays a table of tokens along the frames: the first columns, mean frames, in f32, the others as they are. A token's
// frames follow one another, so its gradient is the sum of a stretch of rows, in order.

// The first of `count` ascending tokens that is not below `token`.
__device__ int first_of(const int* tokens, int count, int token) {
    int low = 0;
    while (low < count) {
        const int middle = (low + count) / 2;
        if (tokens[middle] < token) low = middle + 1;
        else count = middle;
    }
    return low;
}

// Blocks of 256: the first find each token's frames, the others lay rows down, a vector for each thread.
extern "C" __global__ void forward(
    const Element* __restrict__ table,          // [text, mels + width]
    const int* __restrict__ token_of_frame,     // [frames]
    const int* __restrict__ text_owner,         // [text]
    const int* __restrict__ frame_starts, const int* __restrict__ frame_lens,  // [utterances]
    float* __restrict__ mean,                   // [frames, mels]
    Element* __restrict__ content,              // [frames, width]
    float* __restrict__ lasted,                 // [text]: frames of each token
    int* __restrict__ firsts,                   // [text]: the first of them
    int frames, int text, int utterances, int mels, int width)
{
    const int searching = (text + 255) / 256;
    if ((int)blockIdx.x < searching) {
        const int token = blockIdx.x * 256 + threadIdx.x;
        if (token >= text) return;
        const int owner = owner_of(text_owner, token, text, utterances);
        int first = 0, count = 0;
        if (owner < utterances) {
            const int* own = token_of_frame + frame_starts[owner];
            first = first_of(own, frame_lens[owner], token);
            count = first_of(own + first, frame_lens[owner] - first, token + 1);
            first += frame_starts[owner];
        }
        lasted[token] = (float)count;
        firsts[token] = first;
        return;
    }
    const int vectors = (mels + width) / VECTOR;
    const long long at = (long long)(blockIdx.x - searching) * 256 + threadIdx.x;
    if (at >= (long long)frames * vectors) return;
    const int frame = (int)(at / vectors), column = (int)(at % vectors) * VECTOR;
    const int token = (int)min((unsigned)token_of_frame[frame], (unsigned)(text - 1));
    float values[VECTOR];
    load(table + (long long)token * (mels + width) + column, values);
    if (column >= mels) {
        store(content + (long long)frame * width + column - mels, values);
        return;
    }
    float* to = mean + (long long)frame * mels + column;
#pragma unroll
    for (int i = 0; i < VECTOR; i += 4)
        *reinterpret_cast<float4*>(to + i) = make_float4(values[i], values[i + 1], values[i + 2], values[i + 3]);
}

// A vector of a token's row for each thread.
extern "C" __global__ void backward(
    const float* __restrict__ grad_mean,        // [frames, mels]
    const Element* __restrict__ grad_content,   // [frames, width]
    const float* __restrict__ lasted, const int* __restrict__ firsts,  // [text]
    Element* __restrict__ grad_table,           // [text, mels + width]
    int text, int mels, int width)
{
    const int vectors = (mels + width) / VECTOR;
    const long long at = (long long)blockIdx.x * 256 + threadIdx.x;
    if (at >= (long long)text * vectors) return;
    const int token = (int)(at / vectors), column = (int)(at % vectors) * VECTOR;
    const int first = firsts[token], end = first + (int)lasted[token];
    float sums[VECTOR] = {};
    if (column >= mels) {
#pragma unroll 4
        for (int frame = first; frame < end; frame++) {
            float values[VECTOR];
            load(grad_content + (long long)frame * width + column - mels, values);
#pragma unroll
            for (int i = 0; i < VECTOR; i++) sums[i] += values[i];
        }
    } else {
#pragma unroll 4
        for (int frame = first; frame < end; frame++) {
            const float* from = grad_mean + (long long)frame * mels + column;
#pragma unroll
            for (int i = 0; i < VECTOR; i += 4) {
                const float4 values = *reinterpret_cast<const float4*>(from + i);
                sums[i] += values.x, sums[i + 1] += values.y, sums[i + 2] += values.z, sums[i + 3] += values.w;
            }
        }
    }
    store(grad_table + at * VECTOR, sums);
}
