// Monotonic alignment search over a packed batch, in two kernels.
//
// `scores` uses the whole GPU: every frame against every token of its own utterance, some 70 M products, about 12 µs.
// `align` has one block for each utterance, because frames are sequential. One warp holds the best scores of a band of
// 256 tokens in registers, 8 in each lane; a frame costs it one shuffle and 8 sums, about 100 cycles, and no barrier. The
// other warps bring the scores of the next frames into shared memory meanwhile. The way back is one thread chasing bits
// through shared memory, about 50 cycles a frame. For 800 frames and up to 256 tokens that makes about 70 µs, whatever
// the number of utterances, up to one for each multiprocessor; each further band adds 45.

constexpr int TILE = 32;                    // frames and tokens of a block of `scores`
constexpr int PER_LANE = 8;                 // tokens
constexpr int BAND = 32 * PER_LANE;         // tokens that the warp holds at once
constexpr int CHUNK = 16;                   // frames between two barriers
constexpr int WARPS = 8;

// Blocks of 32 x 8 threads, one for each tile of each utterance; those past its end have nothing to do.
extern "C" __global__ void scores(
    const float* __restrict__ mean,         // [text, channels]
    const float* __restrict__ bias,         // [text]
    const float* __restrict__ mel,          // [frames, channels]
    const int* text_starts, const int* text_lens,
    const int* frame_starts, const int* frame_lens,
    float* __restrict__ scores,             // [frames, stride], out: tokens counted from the utterance's first
    int channels, int stride)
{
    extern __shared__ float shared[];
    const int pitch = channels + 1;         // neighbouring rows in different banks
    float* means = shared;                  // [TILE, pitch]
    float* mels = shared + TILE * pitch;
    const int tokens = (int)text_lens[blockIdx.z] - (int)blockIdx.y * TILE;
    const int frames = (int)frame_lens[blockIdx.z] - (int)blockIdx.x * TILE;
    if (tokens <= 0 || frames <= 0) return;
    const long long first_token = text_starts[blockIdx.z] + blockIdx.y * TILE;
    const long long first_frame = frame_starts[blockIdx.z] + blockIdx.x * TILE;

    for (int row = threadIdx.y; row < TILE; row += 8)
        for (int c = threadIdx.x; c < channels; c += 32) {
            means[row * pitch + c] = row < tokens ? mean[(first_token + row) * channels + c] : 0.0f;
            mels[row * pitch + c] = row < frames ? mel[(first_frame + row) * channels + c] : 0.0f;
        }
    __syncthreads();
    const int token = threadIdx.x;
    float dots[TILE / 8] = {};
    for (int c = 0; c < channels; c++) {
        const float value = means[token * pitch + c];
#pragma unroll
        for (int i = 0; i < TILE / 8; i++) dots[i] += value * mels[(threadIdx.y + i * 8) * pitch + c];
    }
    if (token >= tokens) return;
#pragma unroll
    for (int i = 0; i < TILE / 8; i++) {
        const int frame = threadIdx.y + i * 8;
        if (frame < frames)
            scores[(first_frame + frame) * stride + blockIdx.y * TILE + token] = dots[i] + bias[first_token + token];
    }
}

// Frames of a band on their way to the warp.
struct Stage {
    float scores[CHUNK][BAND];
    float left[CHUNK];                      // best score of the token before the band
};

// Brings a chunk in; by all warps but the first.
__device__ void fetch(Stage& stage, const float* scores, const float* left, int band, int tokens, int frame, int frames,
                      int stride) {
    const int width = min(tokens - band * BAND, BAND);
    for (int f = threadIdx.x / 32 - 1; f < CHUNK && frame + f < frames; f += WARPS - 1) {
        const float* row = scores + (long long)(frame + f) * stride + band * BAND;
        // In fours: the stride is whole bands, and what lies behind the last token is never looked at.
        for (int c = threadIdx.x % 32 * 4; c < width; c += 128)
            *reinterpret_cast<float4*>(&stage.scores[f][c]) = *reinterpret_cast<const float4*>(row + c);
        if (band > 0 && threadIdx.x % 32 == 0) stage.left[f] = left[frame + f];
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) align(
    const float* __restrict__ scores,       // [frames, stride]
    const int* text_starts, const int* text_lens,
    const int* frame_starts, const int* frame_lens,
    unsigned char* advanced,                // [frames, stride / 8], scratch: one bit for each token
    float* last,                            // [frames], scratch: best score of a band's last token
    int* token_of_frame,                    // [frames], out
    int stride)                             // whole bands
{
    __shared__ __align__(16) Stage stages[2];
    const float minus_infinity = __int_as_float(0xff800000);
    const int tokens = (int)text_lens[blockIdx.x], frames = (int)frame_lens[blockIdx.x], bytes = stride / 8;
    const int bands = (tokens + BAND - 1) / BAND, lane = threadIdx.x % 32;
    if (tokens == 0) return;
    scores += frame_starts[blockIdx.x] * stride;
    advanced += frame_starts[blockIdx.x] * bytes;
    last += frame_starts[blockIdx.x];
    token_of_frame += frame_starts[blockIdx.x];

    for (int band = 0; band < bands; band++) {
        float best[PER_LANE];
        for (int i = 0; i < PER_LANE; i++) best[i] = minus_infinity;
        // What the band's first token can come from; every path begins there, with nothing.
        float left = band == 0 ? 0.0f : minus_infinity;
        if (threadIdx.x >= 32) fetch(stages[0], scores, last, band, tokens, 0, frames, stride);
        __syncthreads();
        for (int chunk = 0; chunk * CHUNK < frames; chunk++) {
            const int first = chunk * CHUNK;
            if (threadIdx.x >= 32) {
                fetch(stages[(chunk + 1) % 2], scores, last, band, tokens, first + CHUNK, frames, stride);
            } else {
                const Stage& stage = stages[chunk % 2];
                for (int f = 0; f < CHUNK && first + f < frames; f++) {
                    float before = __shfl_up_sync(0xffffffffu, best[PER_LANE - 1], 1);
                    if (lane == 0) before = left;
                    unsigned bits = 0;
                    // From the back, so that best[i - 1] is still the previous frame's.
#pragma unroll
                    for (int i = PER_LANE - 1; i >= 0; i--) {
                        const float step = i > 0 ? best[i - 1] : before;
                        const bool advance = step > best[i];
                        best[i] = stage.scores[f][lane * PER_LANE + i] + (advance ? step : best[i]);
                        bits |= (unsigned)advance << i;
                    }
                    advanced[(long long)(first + f) * bytes + band * 32 + lane] = (unsigned char)bits;
                    left = band == 0 ? minus_infinity : stage.left[f];
                    if (lane == 31) last[first + f] = best[PER_LANE - 1];
                }
            }
            __syncthreads();
        }
    }

    // Back from the last token, as many frames at a time as fit where the scores were.
    unsigned char* bits = reinterpret_cast<unsigned char*>(stages);
    const int used = bands * 32, room = (int)sizeof(stages) / used;
    const long long first_token = text_starts[blockIdx.x];
    int token = tokens - 1;
    for (int end = frames; end > 0; end -= room) {
        const int first = max(end - room, 0);
        for (int i = threadIdx.x; i < (end - first) * (used / 4); i += blockDim.x) {
            const int f = i / (used / 4), word = i % (used / 4);
            reinterpret_cast<unsigned*>(bits)[i] =
                reinterpret_cast<const unsigned*>(advanced + (long long)(first + f) * bytes)[word];
        }
        __syncthreads();
        for (int frame = end - 1; threadIdx.x == 0 && frame >= first; frame--) {
            token_of_frame[frame] = first_token + token;
            const bool advance = bits[(frame - first) * used + token / 8] >> token % 8 & 1;
            if (token > 0 && (advance || token == frame)) token--;
        }
        __syncthreads();
    }
}
