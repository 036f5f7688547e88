// All that is drawn for a batch, from uniform and normal numbers: which frames are context, which come without content,
// the point on the path from noise to speech and the velocity there. One thread for four columns of a frame; it chooses
// for its utterance again what every other of its threads chose too, which costs less than a kernel that tells them.
//
// Rounds as the tensors' operations do, one by one: no product is fused with a sum.

struct Choice {
    float first, end, around, conditioned, prompted, bare;
};

// Of an utterance of `len` frames; see `spans` in context.rs.
__device__ Choice choose(const float* chance, int utterances, int utterance, float len, float span, float least,
                         float without_content, float dropout) {
    const float* own = chance + utterance;  // six draws for each utterance
    Choice choice = {};
    choice.conditioned = own[0] >= dropout ? 1.0f : 0.0f;
    const float size = own[utterances], place = floorf(__fmul_rn(own[2 * utterances], 4.0f)), at = own[3 * utterances];
    const float share = __fadd_rn(__fmul_rn(size, span), least);
    const float count = fminf(fmaxf(floorf(__fmul_rn(share, len)), 2.0f), fmaxf(len - 1.0f, 0.0f));
    const float rest = len - count;
    const float anywhere = fminf(floorf(__fmul_rn(at, rest + 1.0f)), rest);
    choice.around = place == 3.0f ? 1.0f : 0.0f;
    choice.first = place == 1.0f ? rest : place == 2.0f ? anywhere : place == 3.0f ? floorf(__fmul_rn(at, count)) : 0.0f;
    choice.end = choice.first + (place == 3.0f ? rest : count);
    choice.prompted = own[4 * utterances] >= dropout ? choice.conditioned : 0.0f;
    choice.bare = own[5 * utterances] < without_content ? 1.0f : 0.0f;
    return choice;
}

extern "C" __global__ void draw(
    const float* __restrict__ shift,     // [1], uniform
    const float* __restrict__ chance,    // [6, utterances], uniform; [1, utterances] where nothing is context
    const float* __restrict__ noise,     // [rows, mels], normal
    const float* __restrict__ mel,       // [own_rows, mels]; rows are copies of them, end to end
    const int* __restrict__ owner, const int* __restrict__ position,  // [rows]
    const float* __restrict__ mask,      // [rows]
    const int* __restrict__ lens,        // [utterances]
    float* __restrict__ times,           // [utterances], out
    float* __restrict__ context,         // [rows], out where `clones`
    float* __restrict__ content,         // [rows], out
    float* __restrict__ noisy,           // [rows, mels], out
    float* __restrict__ velocity,        // [rows, mels], out
    int rows, int own_rows, int utterances, int mels, int clones, float span, float least, float without_content,
    float dropout, float to_noise)
{
    const int quads = (mels + 3) / 4;
    const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    // Spread evenly over the unit interval, and shifted by one draw.
    auto time_of = [&](int utterance) {
        const float time = (float)utterance / (float)utterances + *shift;
        return time >= 1.0f ? time - 1.0f : time;
    };
    if (at < utterances) times[at] = time_of((int)at);
    if (at >= (long long)rows * quads) return;
    const int row = (int)(at / quads), column = (int)(at % quads) * 4;
    const int utterance = (int)min((unsigned)owner[row], (unsigned)utterances);
    const bool gap = utterance == utterances;

    if (column == 0) {
        Choice choice = {};
        if (!gap && clones)
            choice = choose(chance, utterances, utterance, (float)lens[utterance], span, least, without_content, dropout);
        else if (!gap)
            choice.conditioned = chance[utterance] >= dropout ? 1.0f : 0.0f;
        const float place = (float)position[row];
        const float inside = place >= choice.first && place < choice.end ? 1.0f : 0.0f;
        const float given = fabsf(inside - choice.around) * choice.prompted * mask[row];
        if (clones) context[row] = given;
        content[row] = choice.conditioned * (1.0f - given * choice.bare);
    }

    const float time = gap ? 0.0f : time_of(utterance);
    const float stay = __fadd_rn(-__fmul_rn(time, to_noise), 1.0f);
    const float* from = mel + (long long)(row % own_rows) * mels + column;
    const long long to = (long long)row * mels + column;
    auto point = [&](float start, float speech) {
        return __fadd_rn(__fmul_rn(stay, start), __fmul_rn(time, speech));
    };
    auto slope = [&](float start, float speech) { return __fadd_rn(speech, -__fmul_rn(start, to_noise)); };
    if (mels % 4 == 0 && (unsigned long long)mel % 16 == 0) {
        const float4 speech = *reinterpret_cast<const float4*>(from);
        const float4 start = *reinterpret_cast<const float4*>(noise + to);
        *reinterpret_cast<float4*>(noisy + to) = make_float4(point(start.x, speech.x), point(start.y, speech.y),
                                                             point(start.z, speech.z), point(start.w, speech.w));
        *reinterpret_cast<float4*>(velocity + to) = make_float4(slope(start.x, speech.x), slope(start.y, speech.y),
                                                                slope(start.z, speech.z), slope(start.w, speech.w));
        return;
    }
    for (int i = 0; i < 4 && column + i < mels; i++) {
        noisy[to + i] = point(noise[to + i], from[i]);
        velocity[to + i] = slope(noise[to + i], from[i]);
    }
}
