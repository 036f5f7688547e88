// Monotonic alignment search, one block for each utterance of a packed batch.
//
// Frames are sequential, tokens parallel. Each frame costs one dot product of `channels` for every token, from L1 (the
// means of an utterance are some 50 KB), and two barriers; the way back is one thread chasing bits through L2. For 800
// frames that is a latency of about a millisecond, whatever the number of utterances, up to one for each multiprocessor.

extern "C" __global__ void align(
    const float* __restrict__ mean_t,   // [channels, text]: neighbouring tokens in neighbouring threads
    const float* __restrict__ bias,     // [text]
    const float* __restrict__ mel,      // [frames, channels]
    const long long* text_starts, const long long* text_lens,
    const long long* frame_starts, const long long* frame_lens,
    unsigned char* advanced,            // [frames, stride], scratch
    long long* token_of_frame,          // [frames], out
    int channels, int text, int stride)
{
    extern __shared__ float shared[];
    float* row = shared;                        // the frame's mel values
    float* before = shared + channels;          // best score of each token, previous frame
    float* now = before + stride;
    const float minus_infinity = __int_as_float(0xff800000);

    const int tokens = (int)text_lens[blockIdx.x], frames = (int)frame_lens[blockIdx.x];
    const long long first_token = text_starts[blockIdx.x], first_frame = frame_starts[blockIdx.x];
    if (tokens == 0) return;

    for (int frame = 0; frame < frames; frame++) {
        for (int c = threadIdx.x; c < channels; c += blockDim.x)
            row[c] = mel[(first_frame + frame) * channels + c];
        __syncthreads();
        for (int token = threadIdx.x; token < tokens; token += blockDim.x) {
            float score = minus_infinity;
            bool advance = false;
            if (token <= frame) {
                const float* column = mean_t + first_token + token;
                float dot = bias[first_token + token];
                for (int c = 0; c < channels; c++) dot += row[c] * column[(long long)c * text];
                const float stay = frame > token ? before[token] : minus_infinity;
                const float step = frame > 0 && token > 0 ? before[token - 1] : minus_infinity;
                advance = frame > 0 && (step > stay || token == frame);
                score = frame == 0 ? dot : dot + (advance ? step : stay);
            }
            now[token] = score;
            advanced[(first_frame + frame) * stride + token] = advance;
        }
        __syncthreads();
        float* swap = before; before = now; now = swap;
    }

    if (threadIdx.x != 0) return;
    int token = tokens - 1;
    for (int frame = frames - 1; frame >= 0; frame--) {
        token_of_frame[first_frame + frame] = first_token + token;
        if (token > 0 && advanced[(first_frame + frame) * stride + token]) token--;
    }
}
