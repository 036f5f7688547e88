// A row of `WIDTH` columns in the registers of a warp. `WIDTH` is set before this text; so is `WHOLE_VECTORS` where a lane
// must have its columns in whole vectors.

// Columns of a lane that lie side by side: a vector, or fewer where that keeps all lanes busy up to the row's end.
#ifdef WHOLE_VECTORS
constexpr int GRAIN = VECTOR;
#else
__device__ constexpr int grain_from(int grain) {
    return WIDTH % (32 * grain) == 0 ? grain : grain == 2 ? VECTOR : grain_from(grain / 2);
}
constexpr int GRAIN = grain_from(VECTOR);
#endif
constexpr int GRAINS = (WIDTH + 32 * GRAIN - 1) / (32 * GRAIN);  // of each lane
typedef float Row[GRAINS][GRAIN];

// The same as it lies in memory: fewer registers for what is not computed with yet.
struct __align__(GRAIN * sizeof(Element)) Grain {
    Pair pairs[GRAIN / 2];
};
typedef Grain Packed[GRAINS];

__device__ int column_of(int grain) { return (grain * 32 + (int)(threadIdx.x % 32)) * GRAIN; }
__device__ bool is_inside(int grain) { return WIDTH % (32 * GRAIN) == 0 || column_of(grain) < WIDTH; }

__device__ void clear(Row& values) {
#pragma unroll
    for (int v = 0; v < GRAINS; v++)
#pragma unroll
        for (int i = 0; i < GRAIN; i++) values[v][i] = 0.0f;
}

__device__ void fetch(const Element* row, Packed& packed) {
#pragma unroll
    for (int v = 0; v < GRAINS; v++)
        packed[v] = is_inside(v) ? *reinterpret_cast<const Grain*>(row + column_of(v)) : Grain{};
}

__device__ void unpack(const Packed& packed, Row& values) {
#pragma unroll
    for (int v = 0; v < GRAINS; v++)
#pragma unroll
        for (int i = 0; i < GRAIN; i += 2) {
            const float2 both = widen(packed[v].pairs[i / 2]);
            values[v][i] = both.x;
            values[v][i + 1] = both.y;
        }
}

__device__ void read(const Element* row, Row& values) {
    Packed packed;
    fetch(row, packed);
    unpack(packed, values);
}

__device__ void write(Element* row, const Row& values) {
#pragma unroll
    for (int v = 0; v < GRAINS; v++) {
        if (!is_inside(v)) continue;
        Grain packed;
#pragma unroll
        for (int i = 0; i < GRAIN; i += 2) packed.pairs[i / 2] = narrow(make_float2(values[v][i], values[v][i + 1]));
        *reinterpret_cast<Grain*>(row + column_of(v)) = packed;
    }
}

// The sum over the warp, the same in every lane.
__device__ float warp_sum(float value) {
#pragma unroll
    for (int other = 16; other > 0; other /= 2) value += __shfl_xor_sync(0xffffffffu, value, other);
    return value;
}

// Normalises the row in place; what lies past its end stays zero. Returns one over the deviation.
__device__ float normalise(Row& x, float& mean) {
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int v = 0; v < GRAINS; v++)
#pragma unroll
        for (int i = 0; i < GRAIN; i++) sum += x[v][i];
    mean = warp_sum(sum) / WIDTH;
#pragma unroll
    for (int v = 0; v < GRAINS; v++)
#pragma unroll
        for (int i = 0; i < GRAIN; i++) {
            x[v][i] = is_inside(v) ? x[v][i] - mean : 0.0f;
            squares += x[v][i] * x[v][i];
        }
    const float inverse = rsqrtf(warp_sum(squares) / WIDTH + 1e-5f);
#pragma unroll
    for (int v = 0; v < GRAINS; v++)
#pragma unroll
        for (int i = 0; i < GRAIN; i++) x[v][i] *= inverse;
    return inverse;
}
