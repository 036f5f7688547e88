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

// One block for each tile, one thread for each eight bytes of its rows, which are all in flight at once. A run is rows of
// one utterance, or of none.
extern "C" __global__ void backward(
    const Element* __restrict__ y, const Element* __restrict__ gate, const Element* __restrict__ grad,
    const int* __restrict__ owner,
    Element* __restrict__ grad_y,
    float* __restrict__ partial,        // [tiles + utterances, width]
    int rows, int utterances, int width, int gate_stride)
{
    const int own = HALF * (blockIdx.y * blockDim.x + threadIdx.x), first = blockIdx.x * TILE, lane = threadIdx.x % 32;
    const bool inside = own < width;
    const int column = inside ? own : 0;  // whole warps find the runs
    const int stride = width * (int)sizeof(Element);  // by bytes an address is one multiplication
    const char* top_y = reinterpret_cast<const char*>(y + column);
    const char* top_grad = reinterpret_cast<const char*>(grad + column);
    Half ys[TILE], grads[TILE];
#pragma unroll
    for (int r = 0; r < TILE; r++) {
        const long long at = (long long)min(first + r, rows - 1) * stride;
        ys[r] = *reinterpret_cast<const Half*>(top_y + at);
        grads[r] = *reinterpret_cast<const Half*>(top_grad + at);
    }
    const int mine = owner_of(owner, first + lane % TILE, rows, utterances);
    const int next = __shfl_down_sync(0xffffffffu, mine, 1);
    const unsigned ends = __ballot_sync(0xffffffffu, lane == TILE - 1 || next != mine);
    int run = __shfl_sync(0xffffffffu, mine, 0);
    Half gates = half_at(gate + (long long)run * gate_stride, column);
    float2 sums[HALF / 2] = {};
#pragma unroll
    for (int r = 0; r < TILE; r++) {
        const bool gap = run >= utterances;
        Half out;
#pragma unroll
        for (int i = 0; i < HALF / 2; i++) {
            const float2 g = widen(grads[r].pairs[i]), open = widen(gates.pairs[i]);
            out.pairs[i] = narrow(make_float2(gap ? 0.0f : g.x * open.x, gap ? 0.0f : g.y * open.y));
            add_product(sums[i], g, widen(ys[r].pairs[i]));
        }
        if (inside && first + r < rows) *reinterpret_cast<Half*>(grad_y + (long long)(first + r) * width + column) = out;
        if (!(ends >> r & 1)) continue;
#pragma unroll
        for (int i = 0; i < HALF / 2; i++) {
            float* slot = partial + (long long)(blockIdx.x + run) * width + column + 2 * i;
            if (inside && !gap) *reinterpret_cast<float2*>(slot) = sums[i];
            sums[i] = make_float2(0.0f, 0.0f);
        }
        if (r + 1 == TILE) break;
        run = __shfl_sync(0xffffffffu, mine, r + 1);
        gates = half_at(gate + (long long)run * gate_stride, column);
    }
}
