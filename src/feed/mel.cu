// Log-mel frames from 16-bit samples in one launch: window, transform, magnitudes, mel bands, logarithm, normalisation.
//
// Two neighbouring frames are one complex transform, one as its real and one as its imaginary part. A thread does a
// transform of R1 values in registers, hands them on through shared memory, and does the next of R2 (and R3); at 1024
// samples that is one warp, 32 values a lane and one exchange, with no barrier wider than the warp. Nothing but samples
// and mel values touches memory: 832 bytes a frame, where spectra would be 8 KB. See docs/kernels.md for what it costs.
//
// Set before this text: N (samples of a frame, R1 * R2 * R3), HOP, N_MELS, R1 >= R2 >= R3, the last 1 where two do.

constexpr int TEAM = N / R1;                            // threads of one transform
constexpr unsigned LANES = ~0u >> (TEAM < 32 ? 32 - TEAM : 0);
constexpr int THREADS = TEAM > 128 ? TEAM : 128;
constexpr int TEAMS = THREADS / TEAM;
constexpr int LATER = HOP / TEAM;                       // values of a thread between the two frames
constexpr float FLOOR = 1e-5f;

__device__ __forceinline__ float2 plus(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
__device__ __forceinline__ float2 minus(float2 a, float2 b) { return make_float2(a.x - b.x, a.y - b.y); }
__device__ __forceinline__ float2 times(float2 a, float2 b) {
    return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
__device__ __forceinline__ float2 quarter_turn(float2 a) { return make_float2(a.y, -a.x); }

// By exp(-2 pi i step / 32). Steps are constants once loops are unrolled, and most of this goes away.
__device__ __forceinline__ float2 turn(float2 a, int step) {
    const float cosine[9] = {1.0f,        0.98078528f, 0.92387953f, 0.83146961f, 0.70710678f,
                             0.55557023f, 0.38268343f, 0.19509032f, 0.0f};
    if (step & 16) a = make_float2(-a.x, -a.y);
    if (step & 8) a = quarter_turn(a);
    step &= 7;
    return step == 0 ? a : times(a, make_float2(cosine[step], -cosine[8 - step]));
}

// In registers, in natural order before and after.
template <int R>
__device__ __forceinline__ void transform(float2 (&v)[R]) {
    if constexpr (R == 2) {
        const float2 sum = plus(v[0], v[1]);
        v[1] = minus(v[0], v[1]);
        v[0] = sum;
    } else if constexpr (R == 4) {
        const float2 even = plus(v[0], v[2]), odd = plus(v[1], v[3]);
        const float2 across = minus(v[0], v[2]), turned = quarter_turn(minus(v[1], v[3]));
        v[0] = plus(even, odd);
        v[1] = plus(across, turned);
        v[2] = minus(even, odd);
        v[3] = minus(across, turned);
    } else {
        float2 rows[4][R / 4];
#pragma unroll
        for (int column = 0; column < R / 4; column++) {
            float2 four[4];
#pragma unroll
            for (int i = 0; i < 4; i++) four[i] = v[i * (R / 4) + column];
            transform(four);
#pragma unroll
            for (int i = 0; i < 4; i++) rows[i][column] = turn(four[i], i * column * (32 / R));
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            transform(rows[i]);
#pragma unroll
            for (int k = 0; k < R / 4; k++) v[i + 4 * k] = rows[i][k];
        }
    }
}

// A team of up to 32 lies in one warp; a larger one is the whole block.
__device__ __forceinline__ void together() {
    if constexpr (TEAM > 32) __syncthreads();
    else __syncwarp(LANES << (threadIdx.x % 32 / TEAM * TEAM));
}

// Threads write R1 apart at first: one more, and they meet in no bank.
__device__ __forceinline__ int padded(int index) { return index + index / R1; }

// The R transforms of Stockham's method that follow after `DONE` values are one: R values from shared memory, their
// turns, their transform. A thread has R1 / R of them, `v[b]` being number `rank + b * TEAM`.
template <int R, int DONE>
__device__ __forceinline__ void pass(float2 (&v)[R1 / R][R], const float2* room, const float2* turns, int rank) {
#pragma unroll
    for (int b = 0; b < R1 / R; b++)
#pragma unroll
        for (int r = 0; r < R; r++) v[b][r] = room[padded(rank + b * TEAM + r * (N / R))];
#pragma unroll
    for (int b = 0; b < R1 / R; b++) {
#pragma unroll
        for (int r = 1; r < R; r++) v[b][r] = times(v[b][r], turns[r * DONE + (rank + b * TEAM) % DONE]);
        transform(v[b]);
    }
}

__device__ __forceinline__ float magnitude(float x, float y) {
    float root;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(x * x + y * y));
    return root;
}

// Bins 0 to N / 2 of both frames, from the last pass's values and their mirror images: with Z the transform of a + ib,
// a's bin k is Z[k] + conj Z[N - k] and b's Z[k] - conj Z[N - k], both of them doubled, which the window makes up for.
template <int R>
__device__ __forceinline__ void magnitudes(const float2 (&v)[R1 / R][R], float2* room, int rank) {
    together();
#pragma unroll
    for (int b = 0; b < R1 / R; b++)
#pragma unroll
        for (int r = R / 2; r < R; r++) room[rank + b * TEAM + r * (N / R)] = v[b][r];
    together();
#pragma unroll
    for (int b = 0; b < R1 / R; b++)
#pragma unroll
        for (int r = 0; r < R / 2; r++) {
            const int bin = rank + b * TEAM + r * (N / R);
            const float2 z = v[b][r], mirror = bin == 0 ? z : room[N - bin];
            room[bin] = make_float2(magnitude(z.x + mirror.x, z.y - mirror.y), magnitude(z.y + mirror.y, mirror.x - z.x));
        }
    if (rank == 0) room[N / 2] = make_float2(2.0f * fabsf(v[0][R / 2].x), 2.0f * fabsf(v[0][R / 2].y));
    together();
}

// Two frames for each team. Frames whose entry in `table` is not between `low` and `high` are written as 0.
extern "C" __global__ void __launch_bounds__(THREADS, 640 / THREADS) log_mel(
    const short* __restrict__ samples,                  // [frames * HOP], frame t centred on sample t * HOP
    const float* __restrict__ window,                   // [N], for samples as they are, and halved
    const float2* __restrict__ turns,                   // [R1 * R2 and R1 * R2 * R3], of the later passes
    const int* __restrict__ bands,                      // [2, N_MELS]: first bin, and how many fours of bins
    const float4* __restrict__ weights,                 // [fours of the widest, N_MELS]
    const int* __restrict__ table,                      // [frames]
    float* __restrict__ mel,                            // [frames, N_MELS], out
    int frames, int low, int high, float mean, float inverse_std)
{
    __shared__ float2 rooms[TEAMS][N + N / R1];
    float2* room = rooms[threadIdx.x / TEAM];
    const int rank = threadIdx.x % TEAM, frame = 2 * (blockIdx.x * TEAMS + threadIdx.x / TEAM);
    const auto live = [&](int at) { return at < frames && low <= table[at] && table[at] < high; };
    const bool a = live(frame), b = live(frame + 1);

    if (a || b) {
        float heard[R1 + LATER];
        float2 v[1][R1];
        const int first = frame * HOP - N / 2 + rank, end = frames * HOP;
#pragma unroll
        for (int r = 0; r < R1 + LATER; r++) {
            const int index = first + r * TEAM;
            heard[r] = 0 <= index && index < end ? (float)samples[index] : 0.0f;
        }
#pragma unroll
        for (int r = 0; r < R1; r++) {
            const float share = window[rank + r * TEAM];
            v[0][r] = make_float2(heard[r] * share, heard[r + LATER] * share);
        }
        transform(v[0]);
#pragma unroll
        for (int r = 0; r < R1; r++) room[padded(rank * R1 + r)] = v[0][r];
        together();

        float2 second[R1 / R2][R2];
        pass<R2, R1>(second, room, turns, rank);
        if constexpr (R3 == 1) {
            magnitudes(second, room, rank);
        } else {
            together();
#pragma unroll
            for (int b = 0; b < R1 / R2; b++)
#pragma unroll
                for (int r = 0; r < R2; r++) {
                    const int number = rank + b * TEAM;
                    room[padded(number / R1 * (R1 * R2) + number % R1 + r * R1)] = second[b][r];
                }
            together();
            float2 third[R1 / R3][R3];
            pass<R3, R1 * R2>(third, room, turns + R1 * R2, rank);
            magnitudes(third, room, rank);
        }
    }

    for (int band = rank; band < N_MELS; band += TEAM) {
        float2 sum = make_float2(0.0f, 0.0f);
        const float2* bins = room + bands[band];
        const int fours = a || b ? bands[N_MELS + band] : 0;
#pragma unroll 2
        for (int i = 0; i < fours; i++, bins += 4) {
            const float4 weight = weights[i * N_MELS + band];
            sum.x += weight.x * bins[0].x + weight.y * bins[1].x + weight.z * bins[2].x + weight.w * bins[3].x;
            sum.y += weight.x * bins[0].y + weight.y * bins[1].y + weight.z * bins[2].y + weight.w * bins[3].y;
        }
        const auto normal = [&](float value) { return (__logf(fmaxf(value, FLOOR)) - mean) * inverse_std; };
        if (frame < frames) mel[frame * N_MELS + band] = a ? normal(sum.x) : 0.0f;
        if (frame + 1 < frames) mel[(frame + 1) * N_MELS + band] = b ? normal(sum.y) : 0.0f;
    }
}
