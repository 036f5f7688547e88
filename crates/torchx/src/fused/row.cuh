// A row of `WIDTH` columns in the registers of a warp. `WIDTH` is set before this text.

constexpr int VECTORS = (WIDTH + 32 * VECTOR - 1) / (32 * VECTOR);  // of each lane
typedef float Row[VECTORS][VECTOR];

__device__ int column_of(int vector) { return (vector * 32 + (int)(threadIdx.x % 32)) * VECTOR; }

__device__ void clear(Row& values) {
#pragma unroll
    for (int v = 0; v < VECTORS; v++)
#pragma unroll
        for (int i = 0; i < VECTOR; i++) values[v][i] = 0.0f;
}

__device__ void read(const Element* row, Row& values) {
    clear(values);
#pragma unroll
    for (int v = 0; v < VECTORS; v++)
        if (column_of(v) < WIDTH) load(row + column_of(v), values[v]);
}

__device__ void read_add(const Element* row, Row& values) {
    Row more;
    read(row, more);
#pragma unroll
    for (int v = 0; v < VECTORS; v++)
#pragma unroll
        for (int i = 0; i < VECTOR; i++) values[v][i] += more[v][i];
}

__device__ void read_floats(const float* row, Row& values) {
    clear(values);
#pragma unroll
    for (int v = 0; v < VECTORS; v++) {
        if (column_of(v) >= WIDTH) continue;
#pragma unroll
        for (int i = 0; i < VECTOR; i += 4) {
            const float4 four = *reinterpret_cast<const float4*>(row + column_of(v) + i);
            values[v][i] = four.x, values[v][i + 1] = four.y, values[v][i + 2] = four.z, values[v][i + 3] = four.w;
        }
    }
}

__device__ void write(Element* row, const Row& values) {
#pragma unroll
    for (int v = 0; v < VECTORS; v++)
        if (column_of(v) < WIDTH) store(row + column_of(v), values[v]);
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
    for (int v = 0; v < VECTORS; v++)
#pragma unroll
        for (int i = 0; i < VECTOR; i++) sum += x[v][i];
    mean = warp_sum(sum) / WIDTH;
#pragma unroll
    for (int v = 0; v < VECTORS; v++)
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            x[v][i] = column_of(v) < WIDTH ? x[v][i] - mean : 0.0f;
            squares += x[v][i] * x[v][i];
        }
    const float inverse = rsqrtf(warp_sum(squares) / WIDTH + 1e-5f);
#pragma unroll
    for (int v = 0; v < VECTORS; v++)
#pragma unroll
        for (int i = 0; i < VECTOR; i++) x[v][i] *= inverse;
    return inverse;
}
