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

// Adds a vector of some frames' gradients, `step` apart.
__device__ void add_frames(const float* grad_mean, const Element* grad_content, int column, int mels, int width, int from,
                           int to, int step, float (&sums)[VECTOR]) {
    if (column >= mels) {
#pragma unroll 8
        for (int frame = from; frame < to; frame += step) {
            float values[VECTOR];
            load(grad_content + (long long)frame * width + column - mels, values);
#pragma unroll
            for (int i = 0; i < VECTOR; i++) sums[i] += values[i];
        }
    } else {
#pragma unroll 4
        for (int frame = from; frame < to; frame += step) {
            const float* at = grad_mean + (long long)frame * mels + column;
#pragma unroll
            for (int i = 0; i < VECTOR; i += 4) {
                const float4 values = *reinterpret_cast<const float4*>(at + i);
                sums[i] += values.x, sums[i + 1] += values.y, sums[i + 2] += values.z, sums[i + 3] += values.w;
            }
        }
    }
}

// Tokens of more frames are long: a search by a fresh model gives one token most of an utterance, for which a thread alone
// would make everybody wait. As in text.cpp.
constexpr int LONG = 32;
constexpr int LANES = 16, SHARES = 16;  // of a block that adds up a long token: vectors, and shares of its frames

// Blocks of 256: the first are for the long tokens, the others for the short ones, a vector of a token's row for each
// thread. A long token has a frame whose number is a multiple of `LONG`, and belongs to the blocks of the first of them.
extern "C" __global__ void backward(
    const float* __restrict__ grad_mean,        // [frames, mels]
    const Element* __restrict__ grad_content,   // [frames, width]
    const int* __restrict__ token_of_frame,     // [frames]
    const float* __restrict__ lasted, const int* __restrict__ firsts,  // [text]
    Element* __restrict__ grad_table,           // [text, mels + width]
    int frames, int text, int mels, int width)
{
    __shared__ float shares[SHARES][LANES][VECTOR + 1];  // one more, so that lanes write to different banks
    const int vectors = (mels + width) / VECTOR, groups = (vectors + LANES - 1) / LANES;
    const int searching = (frames + LONG - 1) / LONG * groups;
    float sums[VECTOR] = {};
    if ((int)blockIdx.x >= searching) {
        const long long at = (long long)(blockIdx.x - searching) * 256 + threadIdx.x;
        if (at >= (long long)text * vectors) return;
        const int token = (int)(at / vectors), column = (int)(at % vectors) * VECTOR;
        const int first = firsts[token], count = (int)lasted[token];
        if (count > LONG) return;
        add_frames(grad_mean, grad_content, column, mels, width, first, first + count, 1, sums);
        store(grad_table + at * VECTOR, sums);
        return;
    }
    const int frame = (int)blockIdx.x / groups * LONG;
    const int token = (int)min((unsigned)token_of_frame[frame], (unsigned)(text - 1));
    const int first = firsts[token], count = (int)lasted[token];
    if (count <= LONG || frame < first || frame >= first + count || frame - LONG >= first) return;
    const int lane = threadIdx.x % LANES, share = threadIdx.x / LANES;
    const int vector = (int)blockIdx.x % groups * LANES + lane;
    if (vector < vectors)
        add_frames(grad_mean, grad_content, vector * VECTOR, mels, width, first + share, first + count, SHARES, sums);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) shares[share][lane][i] = sums[i];
    __syncthreads();
    if (share != 0 || vector >= vectors) return;
    for (int other = 1; other < SHARES; other++)
#pragma unroll
        for (int i = 0; i < VECTOR; i++) sums[i] += shares[other][lane][i];
    store(grad_table + ((long long)token * vectors + vector) * VECTOR, sums);
}
