// Convolutions over time and frequency, to 32 channels, on tensor cores: what the kernels share. bf16, channels last.
// `FROM` (8 or 32) channels in, a kernel of `KT` by `KF`, strides `ST` and `SF`; zeros beyond the ends.
//
// With so few channels a matrix product reads each input for every tap: 27 times what there is. Here a tile of the input lies
// in shared memory, and tensor cores take it from there tap by tap.

constexpr int TO = 32, TAPS = KT * KF;
constexpr int PAD_T = KT / 2, PAD_F = KF / 2;
constexpr int TILE_T = 8 / ST, TILE_F = 32;  // places of a tile of the output
// Input that a tile sees. Eight channels are taken two neighbours at a time, so there is one more for the last tap.
constexpr int ROWS = (TILE_T - 1) * ST + KT, COLUMNS = (TILE_F - 1) * SF + (FROM == 8 ? KF + KF % 2 : KF);
// Elements of such a tile; whole lines of 128 bytes, for chunks change places inside them.
constexpr int SEEN = (ROWS * COLUMNS * FROM + 63) / 64 * 64;
constexpr int CHUNKS = FROM / 8, TO_CHUNKS = TO / 8;  // of 16 bytes in a place

// Places that are read at once lie in different banks: sixteen bytes of each, at a distance of one place or two.
template <int PLACE_CHUNKS>
__device__ int chunk_at(int number) {
    return number ^ (number >> 3 & (PLACE_CHUNKS == 4 ? 7 : PLACE_CHUNKS == 2 ? 1 : SF == 2 ? 1 : 0));
}

// Shape of one convolution: [batch, in_t, in_f, FROM] to [batch, out_t, out_f, TO].
struct Plane {
    int batch, in_t, in_f, out_t, out_f;
};

// Which tile of a plane cut into tiles.
struct Place {
    int image, t, f;

    __device__ Place(int number, int tiles_t, int tiles_f, int tile_t, int tile_f)
        : image(number / (tiles_f * tiles_t)), t(number / tiles_f % tiles_t * tile_t), f(number % tiles_f * tile_f) {}
};

__device__ int shares(int total, int share) { return (total + share - 1) / share; }

// `rows` by `columns` places from (t, f) on of one image, on their way to shared memory; zeros where there is none.
template <int PLACE_CHUNKS>
__device__ void fetch(Element* to, const Element* __restrict__ image, int t, int f, int rows, int columns, int all_t,
                      int all_f) {
    for (int number = threadIdx.x; number < rows * columns * PLACE_CHUNKS; number += blockDim.x) {
        const int chunk = number % PLACE_CHUNKS, place = number / PLACE_CHUNKS;
        const int row = t + place / columns, column = f + place % columns;
        const bool there = row >= 0 && row < all_t && column >= 0 && column < all_f;
        const long long at = there ? ((long long)row * all_f + column) * (PLACE_CHUNKS * 8) + chunk * 8 : 0;
        bring(to + chunk_at<PLACE_CHUNKS>(number) * 8, image + at, there);
    }
}

// Two neighbouring channels of each of four tiles of eight, in four neighbouring lanes: each lane ends up with the eight
// channels of one tile, 16 bytes.
__device__ void gather(Pair (&words)[4]) {
    const int lane = threadIdx.x;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const Pair other = __shfl_xor_sync(0xffffffffu, lane & 1 ? words[i] : words[i + 1], 1);
        if (lane & 1) words[i] = other; else words[i + 1] = other;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const Pair other = __shfl_xor_sync(0xffffffffu, lane & 2 ? words[i] : words[i + 2], 2);
        if (lane & 2) words[i] = other; else words[i + 2] = other;
    }
}
