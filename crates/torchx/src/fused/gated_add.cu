// x + y * gate[owner]; zeros in gaps.

extern "C" __global__ void forward(
    const Element* __restrict__ x, const Element* __restrict__ y,  // [rows, width]
    const Element* __restrict__ gate,   // [utterances + 1, width], rows `gate_stride` apart
    const int* __restrict__ owner,      // [rows]
    Element* __restrict__ out,
    int rows, int utterances, int width, int gate_stride)
{
    const int vectors = width / VECTOR, index = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = index / vectors, column = index % vectors * VECTOR;
    if (row >= rows) return;
    const long long at = (long long)row * width + column;
    const int mine = owner_of(owner, row, rows, utterances);
    float sum[VECTOR] = {}, ys[VECTOR], gates[VECTOR];
    if (mine < utterances) {
        load(x + at, sum);
        load(y + at, ys);
        load(gate + (long long)mine * gate_stride + column, gates);
#pragma unroll
        for (int i = 0; i < VECTOR; i++) sum[i] += ys[i] * gates[i];
    }
    store(out + at, sum);
}

// Neighbouring columns in eight bytes: half of a vector.
constexpr int HALF = VECTOR / 2;
struct __align__(8) Half {
    Pair pairs[HALF / 2];
};

__device__ Half half_at(const Element* row, int column) { return *reinterpret_cast<const Half*>(row + column); }

// One block for each tile, one thread for each eight bytes of its rows, which are all in flight at once.
extern "C" __global__ void backward(
    const Element* __restrict__ y, const Element* __restrict__ gate, const Element* __restrict__ grad,
    const int* __restrict__ owner,
    Element* __restrict__ grad_y,
    float* __restrict__ partial,        // [tiles + utterances, width]
    int rows, int utterances, int width, int gate_stride)
{
    const int column = HALF * (blockIdx.y * blockDim.x + threadIdx.x), first = blockIdx.x * TILE;
    if (column >= width) return;
    Half ys[TILE], grads[TILE];
    int owners[TILE];
#pragma unroll
    for (int r = 0; r < TILE; r++) {
        const long long at = (long long)min(first + r, rows - 1) * width;
        owners[r] = owner_of(owner, first + r, rows, utterances);
        ys[r] = half_at(y + at, column);
        grads[r] = half_at(grad + at, column);
    }
    Half gates = half_at(gate + (long long)owners[0] * gate_stride, column);
    float2 sums[HALF / 2] = {};
#pragma unroll
    for (int r = 0; r < TILE; r++) {
        const bool gap = owners[r] >= utterances;
        Half out;
#pragma unroll
        for (int i = 0; i < HALF / 2; i++) {
            const float2 g = widen(grads[r].pairs[i]), open = widen(gates.pairs[i]);
            out.pairs[i] = narrow(make_float2(gap ? 0.0f : g.x * open.x, gap ? 0.0f : g.y * open.y));
            add_product(sums[i], g, widen(ys[r].pairs[i]));
        }
        if (first + r < rows) *reinterpret_cast<Half*>(grad_y + (long long)(first + r) * width + column) = out;
        if (r + 1 < TILE && owners[r + 1] == owners[r]) continue;
#pragma unroll
        for (int i = 0; i < HALF / 2; i++) {
            float* slot = partial + (long long)(blockIdx.x + owners[r]) * width + column + 2 * i;
            if (!gap) *reinterpret_cast<float2*>(slot) = sums[i];
            sums[i] = make_float2(0.0f, 0.0f);
        }
        if (r + 1 < TILE) gates = half_at(gate + (long long)owners[r + 1] * gate_stride, column);
    }
}
