// One optimizer step on all parameters in one pass: clipping, AdamW, moving average, narrow copy. Two kernels before it
// say how: the gradients' norm is summed in two stages in a fixed order, so that two runs agree bit for bit.
//
// `ADDRESSES`, `CHUNK` and `THREADS` are set before this text. A chunk is as many neighbouring elements of one tensor; a
// block of `update` takes one.

constexpr int QUARTERS = 4;  // of a block of `squares`,
constexpr int EACH = 4;      // each with so many chunks of its own

// What a parameter has, where it lies; null where there is none.
struct Slot {
    float* param;
    float* first;
    float* second;
    float* average;
    unsigned short* copy;
    long long size;
    long long decays;
    long long unused;
};

// A part of a tensor: `part` counts chunks.
struct Chunk {
    int slot;
    int part;
};

// What `settle` finds out, for `update`.
struct Verdict {
    float scale;      // of the gradients
    float step_size;  // of the first moments, their bias corrected
    float root;       // of the roots of the second moments, likewise
    float rate;
    float bad;        // 1 where the norm is not finite
    float norm;
    float unused[2];
};

struct Addresses {
    unsigned long long at[ADDRESSES];
};

// Backward passes hand new gradients over: their addresses are this launch's arguments. A captured step has its own for
// good.
extern "C" __global__ void place(Addresses addresses, unsigned long long* __restrict__ gradients, int from, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) gradients[from + i] = addresses.at[i];
}

// A gradient's address; its lowest bit says that it is bf16.
struct Gradient {
    unsigned long long tagged;

    __device__ bool is_absent() const { return tagged == 0; }
    __device__ bool is_narrow() const { return tagged & 1; }
    __device__ const unsigned short* narrow() const { return reinterpret_cast<const unsigned short*>(tagged & ~1ull); }
    __device__ const float* wide() const { return reinterpret_cast<const float*>(tagged); }
    // Whether four can be read at once.
    __device__ bool is_aligned() const { return ((tagged & ~1ull) & (is_narrow() ? 7 : 15)) == 0; }

    __device__ float one(long long at) const {
        return is_narrow() ? __uint_as_float((unsigned)narrow()[at] << 16) : wide()[at];
    }

    __device__ float4 four(long long at) const {
        if (!is_aligned()) return make_float4(one(at), one(at + 1), one(at + 2), one(at + 3));
        if (!is_narrow()) return __ldcs(reinterpret_cast<const float4*>(wide() + at));
        const uint2 bits = __ldcs(reinterpret_cast<const uint2*>(narrow() + at));
        return make_float4(__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xffff0000u),
                           __uint_as_float(bits.y << 16), __uint_as_float(bits.y & 0xffff0000u));
    }
};

// bf16, rounded to nearest, ties to even, as LibTorch does.
__device__ unsigned rounded(float value) {
    const unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fc0u;
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

__device__ float sum_of_warp(float value) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
}

// A thread's share of the sum of the squares of the chunk at `begin`, by `SHARE` threads.
template <int SHARE>
__device__ float squares_of(const Gradient& gradient, long long begin, long long size, int lane) {
    constexpr int ROUNDS = CHUNK / (4 * SHARE);
    float sum = 0.0f;
    if (begin + CHUNK <= size && gradient.is_aligned() && gradient.is_narrow()) {
        uint2 bits[ROUNDS];
#pragma unroll
        for (int i = 0; i < ROUNDS; i++)
            bits[i] = *reinterpret_cast<const uint2*>(gradient.narrow() + begin + 4 * (i * SHARE + lane));
#pragma unroll
        for (int i = 0; i < ROUNDS; i++) {
            const float a = __uint_as_float(bits[i].x << 16), b = __uint_as_float(bits[i].x & 0xffff0000u);
            const float c = __uint_as_float(bits[i].y << 16), d = __uint_as_float(bits[i].y & 0xffff0000u);
            sum += a * a + b * b + c * c + d * d;
        }
        return sum;
    }
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        const long long at = begin + 4 * (i * SHARE + lane);
        if (at + 4 <= size) {
            const float4 four = gradient.four(at);
            sum += four.x * four.x + four.y * four.y + four.z * four.z + four.w * four.w;
        } else {
            for (long long one = at; one < size; one++) sum += gradient.one(one) * gradient.one(one);
        }
    }
    return sum;
}

// Sums of squares of `QUARTERS * EACH` chunks. Where a quarter's chunks lie is looked up for all of them at once, so that
// the blocks, which all run at the same time, wait for that but once.
extern "C" __global__ void __launch_bounds__(THREADS) squares(
    const Slot* __restrict__ slots, const Chunk* __restrict__ chunks,
    const unsigned long long* __restrict__ gradients,
    float* __restrict__ partial,        // [blocks]
    int count)
{
    constexpr int SHARE = THREADS / QUARTERS;
    __shared__ float sums[THREADS / 32];
    const int first = blockIdx.x * QUARTERS * EACH + threadIdx.x / SHARE, lane = threadIdx.x % SHARE;
    Chunk mine[EACH];
    Gradient found[EACH];
    long long sizes[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) mine[i] = chunks[min(first + i * QUARTERS, count - 1)];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        found[i].tagged = gradients[mine[i].slot];
        sizes[i] = slots[mine[i].slot].size;
    }
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (first + i * QUARTERS < count && !found[i].is_absent())
            sum += squares_of<SHARE>(found[i], (long long)mine[i].part * CHUNK, sizes[i], lane);
    sum = sum_of_warp(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int i = 1; i < THREADS / 32; i++) sum += sums[i];
    partial[blockIdx.x] = sum;
}

// One block of 1024 threads: what the norm makes of this step.
extern "C" __global__ void settle(
    const float* __restrict__ partial, int blocks,
    Verdict* __restrict__ verdict,
    float* __restrict__ steps,          // made so far, those left out not counted
    const float* __restrict__ rate,
    float* __restrict__ norm_sum,
    float* __restrict__ spoiled,        // 1 where one of the groups was not finite in this step
    float* __restrict__ skipped,        // number of such steps
    int is_first_group, double max_norm, double beta1, double beta2)
{
    __shared__ double sums[32];
    double sum = 0.0;
#pragma unroll 8
    for (int i = threadIdx.x; i < blocks; i += 1024) sum += partial[i];
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    sum = 0.0;
    for (int i = 0; i < 32; i++) sum += sums[i];
    const float norm = (float)sqrt(sum);
    const bool finite = (__float_as_uint(norm) & 0x7f800000u) != 0x7f800000u;
    const double step = *steps + 1.0f;
    if (finite) {
        *steps = (float)step;
        *norm_sum += norm;
    }
    const float bad = finite ? 0.0f : 1.0f, before = is_first_group ? 0.0f : *spoiled;
    *spoiled = bad > before ? bad : before;
    *skipped += bad > before ? 1.0f : 0.0f;
    const double scale = max_norm / (norm + 1e-6);
    verdict->scale = scale < 1.0 ? (float)scale : 1.0f;
    verdict->step_size = (float)(*rate / (1.0 - pow(beta1, step)));
    verdict->root = (float)(1.0 / sqrt(1.0 - pow(beta2, step)));
    verdict->rate = *rate;
    verdict->bad = bad;
    verdict->norm = norm;
}

struct Rule {
    float scale, step_size, root, kept, beta1, rest1, beta2, rest2, eps;

    __device__ void apply(float gradient, float& param, float& first, float& second) const {
        const float g = gradient * scale;
        first = beta1 * first + rest1 * g;
        second = beta2 * second + rest2 * g * g;
        param = param * kept - step_size * first / (sqrtf(second) * root + eps);
    }
};

// The way that LibTorch's lerp takes, so that either end is exact.
__device__ float towards(float from, float to, float weight) {
    return weight < 0.5f ? from + weight * (to - from) : to - (to - from) * (1.0f - weight);
}

// Where the norm is not finite, and where there is no gradient, the average alone moves.
extern "C" __global__ void __launch_bounds__(THREADS) update(
    const Slot* __restrict__ slots, const Chunk* __restrict__ chunks,
    const unsigned long long* __restrict__ gradients, const Verdict* __restrict__ verdict,
    float beta1, float rest1, float beta2, float rest2, float eps, float weight_decay, float average_weight)
{
    const Chunk chunk = chunks[blockIdx.x];
    const Slot slot = slots[chunk.slot];
    const Gradient gradient = {gradients[chunk.slot]};
    const bool learns = !gradient.is_absent() && verdict->bad == 0.0f;
    if (!learns && !slot.average) return;
    const float kept = slot.decays ? 1.0f - verdict->rate * weight_decay : 1.0f;
    const Rule rule = {verdict->scale, verdict->step_size, verdict->root, kept, beta1, rest1, beta2, rest2, eps};
#pragma unroll
    for (int i = 0; i < CHUNK / (4 * THREADS); i++) {
        const long long at = (long long)chunk.part * CHUNK + 4 * (i * THREADS + (int)threadIdx.x);
        if (at + 4 <= slot.size) {
            float4* const params = reinterpret_cast<float4*>(slot.param + at);
            float4 param = __ldcs(params), average = param;
            if (slot.average) average = __ldcs(reinterpret_cast<const float4*>(slot.average + at));
            if (learns) {
                float4 first = __ldcs(reinterpret_cast<const float4*>(slot.first + at));
                float4 second = __ldcs(reinterpret_cast<const float4*>(slot.second + at));
                const float4 g = gradient.four(at);
                rule.apply(g.x, param.x, first.x, second.x);
                rule.apply(g.y, param.y, first.y, second.y);
                rule.apply(g.z, param.z, first.z, second.z);
                rule.apply(g.w, param.w, first.w, second.w);
                __stcs(params, param);
                __stcs(reinterpret_cast<float4*>(slot.first + at), first);
                __stcs(reinterpret_cast<float4*>(slot.second + at), second);
                if (slot.copy)  // which the next step reads first: it may stay in the cache
                    *reinterpret_cast<uint2*>(slot.copy + at) = make_uint2(
                        rounded(param.x) | rounded(param.y) << 16, rounded(param.z) | rounded(param.w) << 16);
            }
            if (slot.average) {
                average.x = towards(average.x, param.x, average_weight);
                average.y = towards(average.y, param.y, average_weight);
                average.z = towards(average.z, param.z, average_weight);
                average.w = towards(average.w, param.w, average_weight);
                __stcs(reinterpret_cast<float4*>(slot.average + at), average);
            }
        } else {
            for (long long one = at; one < slot.size; one++) {
                if (learns) {
                    rule.apply(gradient.one(one), slot.param[one], slot.first[one], slot.second[one]);
                    if (slot.copy) slot.copy[one] = (unsigned short)rounded(slot.param[one]);
                }
                if (slot.average) slot.average[one] = towards(slot.average[one], slot.param[one], average_weight);
            }
        }
    }
}
