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

// One block for each tile, one thread for each two columns of it.
extern "C" __global__ void backward(
    const Element* __restrict__ y, const Element* __restrict__ gate, const Element* __restrict__ grad,
    const int* __restrict__ owner,
    Element* __restrict__ grad_y,
    float* __restrict__ partial,        // [tiles + utterances, width]
    int rows, int utterances, int width, int gate_stride)
{
    const int column = 2 * (blockIdx.y * blockDim.x + threadIdx.x), first = blockIdx.x * TILE;
    if (column >= width) return;
    Pair ys[TILE], grads[TILE], gates[TILE];
    int owners[TILE];
#pragma unroll
    for (int r = 0; r < TILE; r++) {
        const long long at = (long long)min(first + r, rows - 1) * width;
        ys[r] = pair_at(y + at, column);
        grads[r] = pair_at(grad + at, column);
        owners[r] = owner_of(owner, first + r, rows, utterances);
        gates[r] = pair_at(gate + (long long)owners[r] * gate_stride, column);
    }
    float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
    for (int r = 0; r < TILE; r++) {
        const float2 g = widen(grads[r]), open = widen(gates[r]);
        const bool gap = owners[r] >= utterances;
        if (first + r < rows)
            put_pair(grad_y + (long long)(first + r) * width, column,
                     make_float2(gap ? 0.0f : g.x * open.x, gap ? 0.0f : g.y * open.y));
        add_product(sum, g, widen(ys[r]));
        if (r + 1 < TILE && owners[r + 1] == owners[r]) continue;
        if (owners[r] < utterances)
            *reinterpret_cast<float2*>(partial + (long long)(blockIdx.x + owners[r]) * width + column) = sum;
        sum = make_float2(0.0f, 0.0f);
    }
}
