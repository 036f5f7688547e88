// Rotary positions for queries and keys, straight from the output of their common projection. The halves of a head,
// (a, b), turn to (a cos - b sin, a sin + b cos); the gradient turns back.

struct Place {
    int row, part, head, column;  // `column`: in the half head

    // One thread for each vector of a half head, of `parts` parts.
    __device__ Place(int index, int parts, int heads, int half) {
        const int vectors = half / VECTOR;
        column = index % vectors * VECTOR;
        index /= vectors;
        head = index % heads;
        index /= heads;
        part = index % parts;
        row = index / parts;
    }
};

__device__ void load_floats(const float* from, float (&values)[VECTOR]) {
#pragma unroll
    for (int i = 0; i < VECTOR; i += 4) {
        const float4 four = *reinterpret_cast<const float4*>(from + i);
        values[i] = four.x, values[i + 1] = four.y, values[i + 2] = four.z, values[i + 3] = four.w;
    }
}

// Turns the vectors at `from` and half a head on; `sign` is 1, or -1 for the way back.
__device__ void turn(const Element* from, Element* to, const float* cos, const float* sin, int half, float sign) {
    float a[VECTOR], b[VECTOR], c[VECTOR], s[VECTOR];
    load(from, a);
    load(from + half, b);
    load_floats(cos, c);
    load_floats(sin, s);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        const float turned = a[i] * c[i] - b[i] * s[i] * sign;
        b[i] = a[i] * s[i] * sign + b[i] * c[i];
        a[i] = turned;
    }
    store(to, a);
    store(to + half, b);
}

extern "C" __global__ void forward(
    const Element* __restrict__ qkv,    // [rows, 3, heads, 2 * half]
    const float* __restrict__ cos, const float* __restrict__ sin,  // [rows, half]
    Element* __restrict__ q, Element* __restrict__ k,              // [rows, heads, 2 * half]
    int rows, int heads, int half)
{
    const Place at(blockIdx.x * blockDim.x + threadIdx.x, 2, heads, half);
    if (at.row >= rows) return;
    const long long width = (long long)heads * 2 * half, inner = at.head * 2 * half + at.column;
    const long long angle = (long long)at.row * half + at.column;
    Element* to = at.part == 0 ? q : k;
    turn(qkv + (at.row * 3 + at.part) * width + inner, to + at.row * width + inner, cos + angle, sin + angle, half, 1.0f);
}

extern "C" __global__ void backward(
    const Element* __restrict__ grad_q, const Element* __restrict__ grad_k, const Element* __restrict__ grad_v,
    const float* __restrict__ cos, const float* __restrict__ sin,
    Element* __restrict__ grad,         // [rows, 3, heads, 2 * half]
    int rows, int heads, int half)
{
    const Place at(blockIdx.x * blockDim.x + threadIdx.x, 3, heads, half);
    if (at.row >= rows) return;
    const long long width = (long long)heads * 2 * half, inner = at.head * 2 * half + at.column;
    const long long angle = (long long)at.row * half + at.column;
    const Element* from = (at.part == 0 ? grad_q : at.part == 1 ? grad_k : grad_v) + at.row * width + inner;
    Element* to = grad + (at.row * 3 + at.part) * width + inner;
    if (at.part < 2) {
        turn(from, to, cos + angle, sin + angle, half, -1.0f);
    } else {
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
        *reinterpret_cast<uint4*>(to + half) = *reinterpret_cast<const uint4*>(from + half);
    }
}
