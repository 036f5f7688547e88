// Monotonic alignment search over a packed batch, in two kernels.
//
// `scores` uses the whole GPU: every frame against every token of its own utterance, in tiles whose products each thread
// keeps in registers, 8 frames by 4 tokens. Tiles that no path can reach are left out: about two in five.
// `align` has one block for each utterance, because frames are sequential. A warp holds the best scores of 128 tokens in
// registers, 4 in each lane; the next warp follows it a chunk of frames later, so that a barrier for each chunk is all
// they wait for. A frame costs a warp some 40 instructions and no wait: its scores were loaded a chunk ago, and what it
// needs of the lane before was asked for one frame ago.
// The way back would be a chase of one bit after another. So each token also carries where its path entered the chunk,
// which is all that links one chunk to the one before; then all chunks are followed at once.

#ifndef WARPS
constexpr int WARPS = 8;                    // of a block at most; longer texts take several rounds
#endif
constexpr int PER_LANE = 4;                 // tokens
constexpr int PER_WARP = 32 * PER_LANE;
constexpr int CHUNK = 16;                   // frames between two barriers
constexpr int GROUP = 8;                    // frames whose bits, for a lane's tokens, fill a word
constexpr int PIECE = 32 * 1024;            // bytes of links in shared memory at once
constexpr int CHUNKS = 256;                 // and chunks at most

constexpr int TOKENS = 64;                  // of a block of `scores`
constexpr int FRAMES = 128;
#ifndef SLAB
constexpr int SLAB = 80;                    // channels in shared memory at once
#endif

// Four neighbouring columns of a row, zeros behind its end. `whole`: rows are whole fours, on their boundaries.
__device__ float4 four_of(const float* row, int column, int columns, bool whole) {
    if (whole) return *reinterpret_cast<const float4*>(row + column);
    float values[4];
#pragma unroll
    for (int i = 0; i < 4; i++) values[i] = column + i < columns ? row[column + i] : 0.0f;
    return make_float4(values[0], values[1], values[2], values[3]);
}

__device__ float4 four_of(const unsigned short* row, int column, int columns, bool whole) {
    if (whole) {
        const uint2 bits = *reinterpret_cast<const uint2*>(row + column);
        return make_float4(__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xffff0000u),
                           __uint_as_float(bits.y << 16), __uint_as_float(bits.y & 0xffff0000u));
    }
    float values[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        values[i] = column + i < columns ? __uint_as_float((unsigned)row[column + i] << 16) : 0.0f;
    return make_float4(values[0], values[1], values[2], values[3]);
}

// Rows to columns: `tile[column][row]`. Lanes write neighbouring rows, so no two meet in a bank.
template <int ROWS, class T>
__device__ void lay_down(float* tile, const T* rows, int count, int columns, int stride, bool whole) {
    const int fours = (columns + 3) / 4;
    for (int i = threadIdx.x; i < ROWS * fours; i += 256) {
        const int row = i % ROWS, column = i / ROWS * 4;
        float4 values = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (row < count) values = four_of(rows + (long long)row * stride, column, columns, whole);
        float* to = tile + column * ROWS + row;
        to[0] = values.x, to[ROWS] = values.y, to[2 * ROWS] = values.z, to[3 * ROWS] = values.w;
    }
}

// Blocks of 256 threads, one for each tile of each utterance; those past its end have nothing to do.
extern "C" __global__ void __launch_bounds__(256, 3) scores(
    const void* __restrict__ table,         // [text, width], f32 or bf16; the first columns are the mean frames
    const float* __restrict__ mel,          // [frames, channels]
    const int* text_starts, const int* text_lens,
    const int* frame_starts, const int* frame_lens,
    float* __restrict__ scores,             // [frames, stride], out: tokens counted from the utterance's first
    int channels, int width, int is_bf16, int stride)
{
    extern __shared__ __align__(16) float shared[];
    __shared__ __align__(16) float biases[TOKENS];
    const int all_tokens = text_lens[blockIdx.z], all_frames = frame_lens[blockIdx.z];
    const int token = blockIdx.y * TOKENS, frame = blockIdx.x * FRAMES;
    const int tokens = all_tokens - token, frames = all_frames - frame;
    if (tokens <= 0 || frames <= 0) return;
    // Too few frames are left for the tokens that are: no path comes out of here, and none is misled.
    if (all_tokens - (token + TOKENS) > all_frames - 1 - frame) return;
    scores += (long long)(frame_starts[blockIdx.z] + frame) * stride + token;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // A warp makes 32 tokens by 32 frames.
    const int column = warp % 2 * 32 + lane % 8 * 4, row = warp / 2 * 32 + lane / 8 * 8;
    // No path got this far yet: its score is minus infinity whatever is added, if only that is a number.
    if (token > frame + FRAMES - 1) {
        for (int i = 0; i < 8 && row + i < frames; i++)
            *reinterpret_cast<float4*>(scores + (long long)(row + i) * stride + column) =
                make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        return;
    }

    const bool whole = channels % 4 == 0 && width % 4 == 0 && (unsigned long long)table % 16 == 0;
    const bool whole_mel = channels % 4 == 0 && (unsigned long long)mel % 16 == 0;
    const long long first = (long long)(text_starts[blockIdx.z] + token) * width;
    mel += (long long)(frame_starts[blockIdx.z] + frame) * channels;
    float dots[8][4] = {};
    float squares = 0.0f;
    for (int slab = 0; slab < channels; slab += SLAB) {
        const int columns = min(channels - slab, SLAB), padded = (columns + 3) / 4 * 4;
        float* means = shared;                   // [padded, TOKENS]
        float* mels = shared + padded * TOKENS;  // [padded, FRAMES]
        __syncthreads();
        if (is_bf16)
            lay_down<TOKENS>(means, static_cast<const unsigned short*>(table) + first + slab, tokens, columns, width, whole);
        else
            lay_down<TOKENS>(means, static_cast<const float*>(table) + first + slab, tokens, columns, width, whole);
        lay_down<FRAMES>(mels, mel + slab, frames, columns, channels, whole_mel);
        __syncthreads();
        if (threadIdx.x < TOKENS)
            for (int c = 0; c < padded; c++) squares += means[c * TOKENS + threadIdx.x] * means[c * TOKENS + threadIdx.x];
#pragma unroll 4
        for (int c = 0; c < padded; c++) {
            const float4 mean = *reinterpret_cast<const float4*>(means + c * TOKENS + column);
            const float4 low = *reinterpret_cast<const float4*>(mels + c * FRAMES + row);
            const float4 high = *reinterpret_cast<const float4*>(mels + c * FRAMES + row + 4);
            const float by_frame[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
            for (int i = 0; i < 8; i++) {
                dots[i][0] += by_frame[i] * mean.x;
                dots[i][1] += by_frame[i] * mean.y;
                dots[i][2] += by_frame[i] * mean.z;
                dots[i][3] += by_frame[i] * mean.w;
            }
        }
    }
    if (threadIdx.x < TOKENS) biases[threadIdx.x] = -0.5f * squares;
    __syncthreads();
    const float4 bias = *reinterpret_cast<const float4*>(biases + column);
    // The stride is whole tiles, so what lies behind the last token has room.
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (row + i < frames)
            *reinterpret_cast<float4*>(scores + (long long)(row + i) * stride + column) = make_float4(
                dots[i][0] + bias.x, dots[i][1] + bias.y, dots[i][2] + bias.z, dots[i][3] + bias.w);
}

// What a warp hands to the next at each frame: of its last token, as the frame before left it, the best score and the token
// by which the path there entered the chunk.
struct Handed {
    float best;
    int entered;
};

extern "C" __global__ void __launch_bounds__(32 * WARPS) align(
    const float* __restrict__ scores,       // [frames, stride]
    const int* text_starts, const int* text_lens,
    const int* frame_starts, const int* frame_lens,
    unsigned* advanced,                     // [frames / GROUP + 2 * utterances, stride / PER_LANE], scratch: bits
    unsigned* links,                        // [frames / CHUNK + utterances, stride / PER_LANE], scratch: bytes
    Handed* last,                           // [frames], scratch: of a round's last token
    int* token_of_frame,                    // [frames], out
    int stride)                             // whole warps
{
    __shared__ Handed handed[2][WARPS + 1][CHUNK];
    __shared__ __align__(16) unsigned piece[PIECE / 4];
    __shared__ int ends[CHUNKS];            // token at the last frame of each of a piece's chunks
    const Handed nothing = {__int_as_float(0xff800000), 0};
    const int tokens = text_lens[blockIdx.x], frames = frame_lens[blockIdx.x], words = stride / PER_LANE;
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    // By a shuffle, so that the compiler knows it is the same for all lanes and prepares for no others.
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0);
    if (tokens == 0 || frames == 0) return;
    const int start = frame_starts[blockIdx.x], chunks = (frames + CHUNK - 1) / CHUNK;
    // Chunks end with the last frame; before the first there is nothing, and frames of nothing change nothing.
    const int before_first = chunks * CHUNK - frames;
    scores += (long long)start * stride;
    // Utterances lie in order, so their first groups and chunks are at least as far apart as they have of them.
    advanced += (long long)(start / GROUP + 2 * (int)blockIdx.x) * words;
    links += (long long)(start / CHUNK + (int)blockIdx.x) * words;
    last += start;
    token_of_frame += start;

    // Rounds of as many tokens as the warps hold; all of them, as a rule.
    for (int round = 0; round * warps * PER_WARP < tokens; round++) {
        const int rest = tokens - round * warps * PER_WARP;
        const int active = min((rest + PER_WARP - 1) / PER_WARP, warps);
        const int word = (round * warps + warp) * 32 + lane;  // of the lane's tokens
        const float* column = scores + word * PER_LANE;
        float best[PER_LANE];
        int entered[PER_LANE];
        float4 now[CHUNK], next[CHUNK];
#pragma unroll
        for (int i = 0; i < PER_LANE; i++) best[i] = nothing.best;
#pragma unroll
        for (int f = 0; f < CHUNK; f++)
            next[f] = warp < active && f >= before_first
                ? *reinterpret_cast<const float4*>(column + (long long)(f - before_first) * stride)
                : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        // What the first token can come from: every path begins there, with nothing.
        for (int f = threadIdx.x; f < CHUNK; f += blockDim.x) {
            handed[0][0][f] = nothing;
            handed[1][0][f] = round == 0 || f < before_first ? nothing : last[f - before_first];
            if (round == 0 && f == before_first) handed[1][0][f].best = 0.0f;
        }
        __syncthreads();
        for (int step = 0; step < chunks + active - 1; step++) {
            const int chunk = step - warp;
            const Handed* left = handed[(step + 1) % 2][warp];
            Handed* right = handed[step % 2][warp + 1];
            if (warp < active && chunk >= 0 && chunk < chunks) {
#pragma unroll
                for (int f = 0; f < CHUNK; f++) now[f] = next[f];
                if (chunk + 1 < chunks) {
                    const float* rows = column + (long long)((chunk + 1) * CHUNK - before_first) * stride;
#pragma unroll
                    for (int f = 0; f < CHUNK; f++)
                        next[f] = *reinterpret_cast<const float4*>(rows + (long long)f * stride);
                }
#pragma unroll
                for (int i = 0; i < PER_LANE; i++) entered[i] = word * PER_LANE + i;
                Handed from = {__shfl_up_sync(0xffffffffu, best[PER_LANE - 1], 1),
                               __shfl_up_sync(0xffffffffu, entered[PER_LANE - 1], 1)};
                Handed beside = left[0];
                if (lane == 31) right[0] = {best[PER_LANE - 1], entered[PER_LANE - 1]};
                unsigned bits = 0;
#pragma unroll
                for (int f = 0; f < CHUNK; f++) {
                    const float by_token[PER_LANE] = {now[f].x, now[f].y, now[f].z, now[f].w};
                    if (lane == 0) from = beside;
                    Handed coming;
                    // From the back, so that best[i - 1] is still the previous frame's.
#pragma unroll
                    for (int i = PER_LANE - 1; i >= 0; i--) {
                        const Handed way = i > 0 ? Handed{best[i - 1], entered[i - 1]} : from;
                        const bool advance = way.best > best[i];
                        best[i] = by_token[i] + fmaxf(way.best, best[i]);
                        entered[i] = advance ? way.entered : entered[i];
                        if (advance) bits |= 1u << (f % GROUP * PER_LANE + i);
                        // The next frame's question to the lane before: it is answered while the rest is computed.
                        if (i == PER_LANE - 1 && f + 1 < CHUNK) {
                            coming = {__shfl_up_sync(0xffffffffu, best[i], 1),
                                      __shfl_up_sync(0xffffffffu, entered[i], 1)};
                            beside = left[f + 1];
                            if (lane == 31) right[f + 1] = {best[i], entered[i]};
                        }
                    }
                    if (f + 1 < CHUNK) from = coming;
                    if (f % GROUP == GROUP - 1) {
                        advanced[(long long)((chunk * CHUNK + f) / GROUP) * words + word] = bits;
                        bits = 0;
                    }
                }
                unsigned back = 0;
#pragma unroll
                for (int i = 0; i < PER_LANE; i++) back |= (unsigned)(word * PER_LANE + i - entered[i]) << 8 * i;
                links[(long long)chunk * words + word] = back;
                __syncwarp();
                const int frame = chunk * CHUNK + lane - before_first;
                if (active < (rest + PER_WARP - 1) / PER_WARP && warp == warps - 1 && lane < CHUNK && frame >= 0)
                    last[frame] = right[lane];
            }
            // The warp's own left side, for its next chunk; nobody reads there before the barrier.
            if (warp == 0 && lane < CHUNK) {
                const int frame = (step + 1) * CHUNK + lane - before_first;
                if (round > 0) handed[step % 2][0][lane] = frame < frames ? last[frame] : nothing;
                else if (step == 1) handed[1][0][lane] = nothing;
            }
            __syncthreads();
        }
    }

    // Back from the last token, as many chunks at a time as fit: from chunk to chunk, then within all of them at once.
    const int used = (tokens + PER_WARP - 1) / PER_WARP * 32, room = min(max(PIECE / 4 / used, 1), CHUNKS);
    const bool fits = used * room <= PIECE / 4;
    int token = tokens - 1;
    for (int end = chunks; end > 0; end -= room) {
        const int first = max(end - room, 0);
        const unsigned* rows = links + (long long)first * words;
        for (int i = threadIdx.x * 4; fits && i < (end - first) * used; i += blockDim.x * 4)
            *reinterpret_cast<uint4*>(piece + i) =
                *reinterpret_cast<const uint4*>(rows + (long long)(i / used) * words + i % used);
        __syncthreads();
        const unsigned char* back = reinterpret_cast<const unsigned char*>(fits ? piece : rows);
        const int pitch = (fits ? used : words) * 4;
        for (int chunk = end - 1; threadIdx.x == 0 && chunk >= first; chunk--) {
            ends[chunk - first] = token;
            token = max(token - back[(long long)(chunk - first) * pitch + token], 0);
        }
        __syncthreads();
        for (int chunk = first + (int)threadIdx.x; chunk < end; chunk += blockDim.x) {
            int at = ends[chunk - first];
            for (int f = (chunk + 1) * CHUNK - 1; f >= max(chunk * CHUNK, before_first); f--) {
                token_of_frame[f - before_first] = text_starts[blockIdx.x] + at;
                const unsigned bits = advanced[(long long)(f / GROUP) * words + at / PER_LANE];
                const bool advance = bits >> (f % GROUP * PER_LANE + at % PER_LANE) & 1;
                if (at > 0 && (advance || at == f - before_first)) at--;
            }
        }
        __syncthreads();
    }
}
