// Layer norm with a weight and a bias: residual + dropout(norm(x) * weight + bias), laid out for a convolution of `TAPS`,
// odd: row r of the output holds the rows r - TAPS / 2 … r + TAPS / 2 side by side, zeros where they are of another
// utterance or none. One warp for each row, the row in registers; the backward pass computes mean and variance again.
// `TAPS` is set before this text; so is `RECTIFIED` where x came out of a rectifier, whose gradient is then taken too.

constexpr int WARPS = 8;
constexpr int HALF = TAPS / 2;
constexpr int TILE_WARPS = 4;  // of the backward pass, whose blocks have a tile of rows each, as in convolution.cpp
#ifdef RECTIFIED
constexpr int PARTS = 3;
#else
constexpr int PARTS = 2;
#endif

__device__ void unpack_add(const Packed& packed, Row& values) {
    Row more;
    unpack(packed, more);
#pragma unroll
    for (int v = 0; v < GRAINS; v++)
#pragma unroll
        for (int i = 0; i < VECTOR; i++) values[v][i] += more[v][i];
}

__device__ void read_floats(const float* row, Row& values) {
    clear(values);
#pragma unroll
    for (int v = 0; v < GRAINS; v++) {
        if (!is_inside(v)) continue;
#pragma unroll
        for (int i = 0; i < VECTOR; i += 4) {
            const float4 four = *reinterpret_cast<const float4*>(row + column_of(v) + i);
            values[v][i] = four.x, values[v][i + 1] = four.y, values[v][i + 2] = four.z, values[v][i + 3] = four.w;
        }
    }
}

__device__ void drop(const Dropout& dropout, Row& values, int row) {
#pragma unroll
    for (int v = 0; v < GRAINS; v++)
        if (is_inside(v)) dropout(values[v], ((unsigned)row * WIDTH + column_of(v)) / VECTOR);
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) forward(
    const Element* __restrict__ x,         // [rows, WIDTH]
    const Element* __restrict__ residual,  // [rows, WIDTH], or none
    const float* __restrict__ weight, const float* __restrict__ bias,  // [WIDTH]
    const int* __restrict__ owner,         // [rows]
    Element* __restrict__ out,             // [rows, TAPS, WIDTH]
    int rows, int utterances, const unsigned* seed, int layer, int threshold, float scale)
{
    const int row = blockIdx.x * WARPS + threadIdx.x / 32;
    if (row >= rows) return;
    float mean;
    Row values, weights, biases;
    read(x + (long long)row * WIDTH, values);
    read_floats(weight, weights);
    read_floats(bias, biases);
    normalise(values, mean);
#pragma unroll
    for (int v = 0; v < GRAINS; v++)
#pragma unroll
        for (int i = 0; i < VECTOR; i++) values[v][i] = values[v][i] * weights[v][i] + biases[v][i];
    drop(Dropout{seed, layer, threshold, scale}, values, row);
    if (residual) {
        Packed packed;
        fetch(residual + (long long)row * WIDTH, packed);
        unpack_add(packed, values);
    }
    if (TAPS == 1) {
        write(out + (long long)row * WIDTH, values);
        return;
    }
    Row nothing;
    clear(nothing);
    const int mine = owner_of(owner, row, rows, utterances);
    for (int tap = 0; tap < TAPS; tap++) {
        const int seer = row + HALF - tap, seen = row + tap - HALF;
        if (mine < utterances && owner_of(owner, seer, rows, utterances) == mine)
            write(out + ((long long)seer * TAPS + tap) * WIDTH, values);
        if (mine >= utterances || owner_of(owner, seen, rows, utterances) != mine)
            write(out + ((long long)row * TAPS + tap) * WIDTH, nothing);
    }
}

// The gradients of a row, from all the places that it was laid to.
__device__ void fetch_gradients(const Element* grad, const int* owner, int row, int rows, int utterances,
                                Packed (&packed)[TAPS]) {
    if (TAPS == 1) return fetch(grad + (long long)row * WIDTH, packed[0]);
    const int mine = owner_of(owner, row, rows, utterances);
#pragma unroll
    for (int tap = 0; tap < TAPS; tap++) {
        const int seer = row + HALF - tap;
        if (mine < utterances && owner_of(owner, seer, rows, utterances) == mine) {
            fetch(grad + ((long long)seer * TAPS + tap) * WIDTH, packed[tap]);
        } else {
#pragma unroll
            for (int v = 0; v < GRAINS; v++) packed[tap][v] = Grain{};
        }
    }
}

// With n = norm(x) and h = grad * weight: inverse * (h - mean(h) - n * mean(h * n)). A warp takes some rows of the tile,
// the next one on its way meanwhile.
extern "C" __global__ void __launch_bounds__(32 * TILE_WARPS) backward(
    const Element* __restrict__ x, const float* __restrict__ weight,
    const Element* __restrict__ grad,      // [rows, TAPS, WIDTH]
    const Element* __restrict__ passed,    // [rows, WIDTH]: what else x gets, or none
    const int* __restrict__ owner,
    Element* __restrict__ grad_x,          // [rows, WIDTH]
    float* __restrict__ partial,           // [blocks, PARTS, WIDTH]: of weight, of bias, and of grad_x where RECTIFIED
    int rows, int utterances, const unsigned* seed, int layer, int threshold, float scale)
{
    __shared__ float shares[TILE_WARPS][WIDTH];
    const int warp = threadIdx.x / 32, end = min((int)(blockIdx.x + 1) * TILE, rows);
    const Dropout dropout = {seed, layer, threshold, scale};
    int row = blockIdx.x * TILE + warp;
    Packed packed_x, packed_grads[TAPS], packed_more = {};
    if (row < end) {
        fetch(x + (long long)row * WIDTH, packed_x);
        fetch_gradients(grad, owner, row, rows, utterances, packed_grads);
    }
    Row weights, sums[PARTS];
    read_floats(weight, weights);
#pragma unroll
    for (int part = 0; part < PARTS; part++) clear(sums[part]);
#pragma unroll 1
    for (; row < end; row += TILE_WARPS) {
        const long long at = (long long)row * WIDTH;
        if (passed) fetch(passed + at, packed_more);
        Row n, h;
        unpack(packed_x, n);
        unpack(packed_grads[0], h);
#pragma unroll
        for (int tap = 1; tap < TAPS; tap++) unpack_add(packed_grads[tap], h);
        if (row + TILE_WARPS < end) {
            fetch(x + at + TILE_WARPS * WIDTH, packed_x);
            fetch_gradients(grad, owner, row + TILE_WARPS, rows, utterances, packed_grads);
        }
#ifdef RECTIFIED
        unsigned positive = 0;  // a bit for each element
#pragma unroll
        for (int v = 0; v < GRAINS; v++)
#pragma unroll
            for (int i = 0; i < VECTOR; i++) positive |= (n[v][i] > 0.0f ? 1u : 0u) << (v * VECTOR + i);
#endif
        float mean;
        const float inverse = normalise(n, mean);
        drop(dropout, h, row);
        float sum = 0.0f, dot = 0.0f;
#pragma unroll
        for (int v = 0; v < GRAINS; v++)
#pragma unroll
            for (int i = 0; i < VECTOR; i++) {
                sums[0][v][i] += h[v][i] * n[v][i];
                sums[1][v][i] += h[v][i];
                h[v][i] *= weights[v][i];
                sum += h[v][i];
                dot += h[v][i] * n[v][i];
            }
        sum = warp_sum(sum) / WIDTH;
        dot = warp_sum(dot) / WIDTH;
#pragma unroll
        for (int v = 0; v < GRAINS; v++)
#pragma unroll
            for (int i = 0; i < VECTOR; i++) h[v][i] = inverse * (h[v][i] - sum - n[v][i] * dot);
        unpack_add(packed_more, h);
#ifdef RECTIFIED
#pragma unroll
        for (int v = 0; v < GRAINS; v++)
#pragma unroll
            for (int i = 0; i < VECTOR; i++) {
                if (!(positive >> (v * VECTOR + i) & 1u)) h[v][i] = 0.0f;
                sums[2][v][i] += h[v][i];
            }
#endif
        write(grad_x + at, h);
    }
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        __syncthreads();
#pragma unroll
        for (int v = 0; v < GRAINS; v++)
#pragma unroll
            for (int i = 0; i < VECTOR; i++)
                if (is_inside(v)) shares[warp][column_of(v) + i] = sums[part][v][i];
        __syncthreads();
        for (int column = threadIdx.x; column < WIDTH; column += 32 * TILE_WARPS) {
            float sum = 0.0f;
            for (int i = 0; i < TILE_WARPS; i++) sum += shares[i][column];
            partial[((long long)blockIdx.x * PARTS + part) * WIDTH + column] = sum;
        }
    }
}
