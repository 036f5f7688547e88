// Attention inside each utterance of rows laid end to end, heads of 64 channels, bf16 (FlashAttention-2, Dao 2023). Blocks of
// four warps take 64 rows of one utterance and head each; tiles are as small as that because utterances are short: LibTorch's
// kernels, of 128 by 128, compute twice as much of them as there is, and start a block for every empty tile of the longest.
//
// On Hopper the four warps make their products together, and the right sides stay in shared memory (wgmma.cuh).
//
// The backward pass has blocks that own queries and blocks that own keys, and each computes the scores again: 7 products
// instead of 5, but no sums between blocks, so that two runs agree bit for bit. It also turns the rotary positions back.

constexpr int DIM = 64;       // channels of a head
constexpr int TILE_ROWS = 64;
constexpr int WARP_ROWS = 16;
constexpr int TILE_THREADS = 128;
constexpr int STEPS = DIM / 16;  // of 16 channels, in a product along the channels
constexpr float NEVER = 3.0e38f;  // a logarithm so large that its row gets no weight

typedef Element Tile[TILE_ROWS * DIM];

// Where utterances lie; some may be of no rows. Gaps are between them.
struct Utterances {
    const int *starts, *lens;
    int count;
};

// A part of one of them.
struct Part {
    int first;   // row of the utterance's first
    int length;  // rows of the utterance
    int row;     // of the part's first, in the utterance
};

// The tile of number `index` over all utterances; false behind the last. By each warp for itself. The longest first
// was tried, so that no block begins with many tiles before it when the others are done: it took 5 % longer.
__device__ bool find_part(const Utterances& all, int index, Part& part) {
    const int lane = threadIdx.x % 32;
    int before = 0;
    for (int base = 0; base < all.count; base += 32) {
        const int utterance = base + lane;
        const int first = utterance < all.count ? all.starts[utterance] : 0;
        const int length = utterance < all.count ? all.lens[utterance] : 0;
        const int tiles = (length + TILE_ROWS - 1) / TILE_ROWS;
        int until = tiles;
#pragma unroll
        for (int other = 1; other < 32; other *= 2) {
            const int left = __shfl_up_sync(0xffffffffu, until, other);
            if (lane >= other) until += left;
        }
        const unsigned past = __ballot_sync(0xffffffffu, before + until > index);
        if (past != 0) {
            const int owner = __ffs(past) - 1;
            part.first = __shfl_sync(0xffffffffu, first, owner);
            part.length = __shfl_sync(0xffffffffu, length, owner);
            part.row = (index - before - __shfl_sync(0xffffffffu, until - tiles, owner)) * TILE_ROWS;
            return true;
        }
        before += __shfl_sync(0xffffffffu, until, 31);
    }
    return false;
}

// Writes zeros to a head's channels in rows of gaps: nobody looks at what attention makes of them, but they are to be numbers.
// The block of an utterance's last tile takes the gap behind it, the first block also that in front; all, where there is
// nothing else. `to`: the head's channels in the very first row.
__device__ void clear_gaps(const Utterances& all, bool found, const Part& part, int rows, Element* __restrict__ to, int stride) {
    auto clear_rows = [&](int from, int until) {
        for (int at = from * 8 + (int)threadIdx.x; at < until * 8; at += TILE_THREADS)
            *reinterpret_cast<uint4*>(to + (long long)(at / 8) * stride + at % 8 * VECTOR) = make_uint4(0, 0, 0, 0);
    };
    if (blockIdx.x == 0) clear_rows(0, found ? part.first : rows);
    if (!found || part.row + TILE_ROWS < part.length) return;
    const int end = part.first + part.length;
    int next = rows;
    for (int utterance = threadIdx.x % 32; utterance < all.count; utterance += 32)
        if (all.lens[utterance] > 0 && all.starts[utterance] >= end) next = min(next, all.starts[utterance]);
#pragma unroll
    for (int other = 16; other > 0; other /= 2) next = min(next, __shfl_xor_sync(0xffffffffu, next, other));
    clear_rows(end, next);
}

// Sixteen bytes of a tile. Neighbouring rows keep them in different banks.
__device__ Element* cell(Tile& tile, int row, int eighth) { return tile + row * DIM + ((eighth ^ (row & 7)) * 8); }

// Rows `from_row` on of an utterance into shared memory. `rows`: its head's channels in its first row.
__device__ void fetch(Tile& tile, const Element* __restrict__ rows, int stride, int from_row, int length) {
#pragma unroll
    for (int i = 0; i < TILE_ROWS * 8 / TILE_THREADS; i++) {
        const int at = i * TILE_THREADS + (int)threadIdx.x, row = at / 8, eighth = at % 8;
        const bool there = from_row + row < length;
        bring(cell(tile, row, eighth), rows + (long long)(there ? from_row + row : 0) * stride + eighth * 8, there);
    }
}

template <int COUNT>
__device__ void clear(float (&sums)[COUNT][4]) {
#pragma unroll
    for (int n = 0; n < COUNT; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[n][i] = 0.0f;
}

// Registers that stay where they are: none of what follows is done with them before, nor what went before after.
template <int COUNT>
__device__ void hold(float (&sums)[COUNT][4]) {
#pragma unroll
    for (int n = 0; n < COUNT; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) asm volatile("" : "+f"(sums[n][i])::"memory");
}

template <int COUNT>
__device__ void hold(const unsigned (&left)[COUNT][4]) {
#pragma unroll
    for (int n = 0; n < COUNT; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) asm volatile("" ::"r"(left[n][i]) : "memory");
}

// Between these two lie products, whose sums and left sides are left alone until all are done: those that hold something
// when the products begin, and all of them when they end.
template <class... Registers>
__device__ void begin_products(Registers&... registers) {
#ifdef WARPGROUPS
    (hold(registers), ...);
    begin_group_products();
#endif
}

template <class... Registers>
__device__ void finish_products(Registers&... registers) {
#ifdef WARPGROUPS
    finish_group_products();
    (hold(registers), ...);
#endif
}

// What other threads brought to shared memory is there from now on.
__device__ void meet() {
#ifdef WARPGROUPS
    show_to_tensor_cores();
#endif
    __syncthreads();
}

#ifdef WARPGROUPS
// The left side of products along the channels: a tile of a block's own rows, sixteen for each warp. It lies in shared memory
// as long as it is used.
struct Left {
    const Element* rows;

    __device__ explicit Left(Tile& tile) : rows(tile) {}
};

// sums[n] = left · tileᵀ, for the tile's rows 8 n on from `base`, a multiple of 8.
template <int COUNT>
__device__ void against_rows(float (&sums)[COUNT][4], const Left& left, Tile& tile, int base) {
#pragma unroll
    for (int step = 0; step < STEPS; step++)
        group_multiply(sums, described(left.rows + step * 16), described(tile + base * DIM + step * 16), step);
}

// sums[n] += weights · tile, over sixteen of the tile's rows from `base` on, a multiple of 8; channels 8 n on.
__device__ void over_rows(float (&sums)[8][4], const unsigned (&weights)[4], Tile& tile, int base) {
    group_multiply_turned(sums, weights, described(tile + base * DIM));
}
#else
struct Left {
    unsigned parts[STEPS][4];

    __device__ explicit Left(Tile& tile) {
        const int lane = threadIdx.x % 32, row = (int)threadIdx.x / 32 * WARP_ROWS + lane % 16;
#pragma unroll
        for (int step = 0; step < STEPS; step++) load_matrices(parts[step], cell(tile, row, step * 2 + lane / 16));
    }
};

template <int COUNT>
__device__ void against_rows(float (&sums)[COUNT][4], const Left& left, Tile& tile, int base) {
    const int lane = threadIdx.x % 32;
    clear(sums);
#pragma unroll
    for (int n = 0; n < COUNT; n++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            unsigned four[4];
            load_matrices(four, cell(tile, base + n * 8 + lane % 8, half * 4 + lane / 8));
            multiply(sums[n], left.parts[2 * half], four[0], four[1]);
            multiply(sums[n], left.parts[2 * half + 1], four[2], four[3]);
        }
}

__device__ void over_rows(float (&sums)[8][4], const unsigned (&weights)[4], Tile& tile, int base) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < 4; n++) {
        unsigned four[4];
        load_turned(four, cell(tile, base + lane % 16, n * 2 + lane / 16));
        multiply(sums[2 * n], weights, four[0], four[1]);
        multiply(sums[2 * n + 1], weights, four[2], four[3]);
    }
}
#endif

// Two neighbouring results of a product as one left side of the next, along their columns.
__device__ void as_weights(unsigned (&weights)[4], const float (&left)[4], const float (&right)[4]) {
    weights[0] = narrow(make_float2(left[0], left[1]));
    weights[1] = narrow(make_float2(left[2], left[3]));
    weights[2] = narrow(make_float2(right[0], right[1]));
    weights[3] = narrow(make_float2(right[2], right[3]));
}

// Over the four lanes that share a row.
__device__ float sum_of_row(float value) {
    value += __shfl_xor_sync(0xffffffffu, value, 1);
    return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

__device__ float most_of_row(float value) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
    return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

extern "C" __global__ void __launch_bounds__(TILE_THREADS, 4) forward(
    const Element* __restrict__ q, const Element* __restrict__ k,  // [rows, heads, DIM]
    const Element* __restrict__ v,      // rows `v_stride` apart
    Utterances utterances,
    Element* __restrict__ out,          // [rows, heads, DIM]
    float* __restrict__ logs,           // [heads, rows]: of the sums of weights, base 2
    int rows, int heads, int v_stride, float scale)  // `scale`: of the scores, times log2(e)
{
    __shared__ __align__(1024) Tile own;
    __shared__ __align__(1024) Tile keys[2];
    __shared__ __align__(1024) Tile values[2];
    Part part;
    const bool found = find_part(utterances, blockIdx.x, part);
    const int head = blockIdx.y, stride = heads * DIM, lane = threadIdx.x % 32;
    clear_gaps(utterances, found, part, rows, out + head * DIM, stride);
    if (!found) return;
    const int row = part.row + (int)threadIdx.x / 32 * WARP_ROWS;  // of the warp's first
    const long long start = (long long)part.first * stride + head * DIM;
    const Element* own_values = v + (long long)part.first * v_stride + head * DIM;

    fetch(own, q + start, stride, part.row, part.length);
    end_of_group();
    fetch(keys[0], k + start, stride, 0, part.length);
    fetch(values[0], own_values, v_stride, 0, part.length);
    end_of_group();
    wait_for_groups<1>();
    meet();
    const Left queries(own);
    float sums[8][4], most[2] = {-NEVER, -NEVER}, total[2] = {0.0f, 0.0f};
    clear(sums);
    const int tiles = (part.length + TILE_ROWS - 1) / TILE_ROWS;
    for (int tile = 0; tile < tiles; tile++) {
        const int stage = tile % 2, first = tile * TILE_ROWS;
        if (tile + 1 < tiles) {
            fetch(keys[1 - stage], k + start, stride, first + TILE_ROWS, part.length);
            fetch(values[1 - stage], own_values, v_stride, first + TILE_ROWS, part.length);
        }
        end_of_group();
        wait_for_groups<1>();
        meet();

        float scores[8][4];
        begin_products();
        against_rows(scores, queries, keys[stage], 0);
        finish_products(scores);
        if (first + TILE_ROWS > part.length) {
#pragma unroll
            for (int n = 0; n < 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (first + n * 8 + 2 * (lane % 4) + i % 2 >= part.length) scores[n][i] = -NEVER;
        }
        float now[2] = {most[0], most[1]};
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) now[i / 2] = fmaxf(now[i / 2], scores[n][i]);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            now[r] = most_of_row(now[r]);
            const float shrink = exp2_of((most[r] - now[r]) * scale);
            most[r] = now[r];
            total[r] *= shrink;
#pragma unroll
            for (int n = 0; n < 8; n++) sums[n][2 * r] *= shrink, sums[n][2 * r + 1] *= shrink;
        }
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                scores[n][i] = exp2_of((scores[n][i] - most[i / 2]) * scale);
                total[i / 2] += scores[n][i];
            }
        unsigned weights[4][4];
#pragma unroll
        for (int step = 0; step < 4; step++) as_weights(weights[step], scores[2 * step], scores[2 * step + 1]);
        begin_products(sums, weights);
#pragma unroll
        for (int step = 0; step < 4; step++) over_rows(sums, weights[step], values[stage], step * 16);
        finish_products(sums, weights);
        __syncthreads();
    }

#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int mine = row + lane / 4 + 8 * r;
        const float all = sum_of_row(total[r]), inverse = 1.0f / all;
        if (mine >= part.length) continue;
        Element* to = out + start + (long long)mine * stride + 2 * (lane % 4);
#pragma unroll
        for (int n = 0; n < 8; n++)
            put_pair(to, n * 8, make_float2(sums[n][2 * r] * inverse, sums[n][2 * r + 1] * inverse));
        if (lane % 4 == 0) logs[(long long)head * rows + part.first + mine] = most[r] * scale + log2f(all);
    }
}

// dots[head][row] = out · grad: what every weight's gradient is less by. Eight lanes for each.
extern "C" __global__ void prepare(
    const Element* __restrict__ out, const Element* __restrict__ grad,  // [rows, heads, DIM]
    float* __restrict__ dots,           // [heads, rows]
    int rows, int heads)
{
    const int index = (blockIdx.x * blockDim.x + threadIdx.x) / 8;
    const int safe = min(index, rows * heads - 1);
    float a[VECTOR], b[VECTOR], dot = 0.0f;
    const long long at = (long long)safe * DIM + threadIdx.x % 8 * VECTOR;
    load(out + at, a);
    load(grad + at, b);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) dot += a[i] * b[i];
#pragma unroll
    for (int other = 1; other < 8; other *= 2) dot += __shfl_xor_sync(0xffffffffu, dot, other);
    if (threadIdx.x % 8 == 0 && index < rows * heads) dots[(long long)(index % heads) * rows + index / heads] = dot;
}

// Writes sixteen rows of a gradient, times `factor`. With angles (`cos` not null) the halves of a head are turned back.
__device__ void write_rows(const float (&sums)[8][4], Element* __restrict__ to, int stride, const float* __restrict__ cos,
                           const float* __restrict__ sin, int row, int length, float factor) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int mine = row + lane / 4 + 8 * r;
        if (mine >= length) continue;
        Element* own = to + (long long)mine * stride + 2 * (lane % 4);
#pragma unroll
        for (int n = 0; n < 4; n++) {
            float2 a = make_float2(sums[n][2 * r] * factor, sums[n][2 * r + 1] * factor);
            float2 b = make_float2(sums[n + 4][2 * r] * factor, sums[n + 4][2 * r + 1] * factor);
            if (cos) {
                const int angle = mine * (DIM / 2) + n * 8 + 2 * (lane % 4);
                const float2 c = *reinterpret_cast<const float2*>(cos + angle);
                const float2 s = *reinterpret_cast<const float2*>(sin + angle);
                const float2 turned = make_float2(a.x * c.x + b.x * s.x, a.y * c.y + b.y * s.y);
                b = make_float2(b.x * c.x - a.x * s.x, b.y * c.y - a.y * s.y);
                a = turned;
            }
            put_pair(own, n * 8, a);
            put_pair(own, n * 8 + DIM / 2, b);
        }
    }
}

// Pointers to what a block of the backward pass reads and writes, at its utterance's first row and its head.
struct Sides {
    const Element *q, *k, *v, *grad;
    const float *logs, *dots, *cos, *sin;
    Element* to;         // [3] parts, `stride` apart
    int stride, v_stride, to_stride;
    float scale;         // of the scores
};

// Weights are powers of two.
constexpr float LOG2_E = 1.4426950408889634f;

// Shared memory of such a block, its own rows and what it goes over.
struct Room {
    Tile own[2], left[2], right[2];
    float logs[2][TILE_ROWS], dots[2][TILE_ROWS];
};

// A block that owns keys: gradients of 64 keys and values, over all queries of the utterance.
__device__ void own_keys(const Sides& at, const Part& part, Room& room) {
    Tile(&queries)[2] = room.left;
    Tile(&grads)[2] = room.right;
    const int lane = threadIdx.x % 32, row = part.row + (int)threadIdx.x / 32 * WARP_ROWS, length = part.length;
    auto fetch_queries = [&](int stage, int first) {
        fetch(queries[stage], at.q, at.stride, first, length);
        fetch(grads[stage], at.grad, at.stride, first, length);
        // Zeros where there are no rows, too: weights of one, by which nothing but zeros is multiplied.
        const int r = threadIdx.x % TILE_ROWS, row = min(first + r, length - 1);
        const bool there = first + r < length;
        if (threadIdx.x < TILE_ROWS) {
            bring_one(room.logs[stage] + r, at.logs + row, there);
        } else {
            bring_one(room.dots[stage] + r, at.dots + row, there);
        }
    };
    fetch(room.own[0], at.k, at.stride, part.row, length);
    fetch(room.own[1], at.v, at.v_stride, part.row, length);
    end_of_group();
    fetch_queries(0, 0);
    end_of_group();
    wait_for_groups<1>();
    meet();
    const Left keys(room.own[0]), values(room.own[1]);
    float by_key[8][4], by_value[8][4];
    clear(by_key);
    clear(by_value);
    const int tiles = (length + TILE_ROWS - 1) / TILE_ROWS;
    for (int tile = 0; tile < tiles; tile++) {
        const int stage = tile % 2;
        if (tile + 1 < tiles) fetch_queries(1 - stage, (tile + 1) * TILE_ROWS);
        end_of_group();
        wait_for_groups<1>();
        meet();
#pragma unroll
        for (int part_of_tile = 0; part_of_tile < 2; part_of_tile++) {
            const int base = part_of_tile * 32;
            float weights[4][4], slopes[4][4];
            begin_products();
            against_rows(weights, keys, queries[stage], base);
            against_rows(slopes, values, grads[stage], base);
            finish_products(weights, slopes);
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int query = base + n * 8 + 2 * (lane % 4) + i % 2;
                    weights[n][i] = exp2_of(weights[n][i] * (at.scale * LOG2_E) - room.logs[stage][query]);
                    slopes[n][i] = weights[n][i] * (slopes[n][i] - room.dots[stage][query]);
                }
            unsigned by_weight[2][4], by_slope[2][4];
#pragma unroll
            for (int step = 0; step < 2; step++) {
                as_weights(by_weight[step], weights[2 * step], weights[2 * step + 1]);
                as_weights(by_slope[step], slopes[2 * step], slopes[2 * step + 1]);
            }
            begin_products(by_value, by_key, by_weight, by_slope);
#pragma unroll
            for (int step = 0; step < 2; step++) {
                over_rows(by_value, by_weight[step], grads[stage], base + step * 16);
                over_rows(by_key, by_slope[step], queries[stage], base + step * 16);
            }
            finish_products(by_value, by_key, by_weight, by_slope);
        }
        __syncthreads();
    }
    write_rows(by_key, at.to + at.stride, at.to_stride, at.cos, at.sin, row, length, at.scale);
    write_rows(by_value, at.to + 2 * at.stride, at.to_stride, nullptr, nullptr, row, length, 1.0f);
}

// A block that owns queries: gradients of 64 of them, over all keys of the utterance.
__device__ void own_queries(const Sides& at, const Part& part, Room& room) {
    Tile(&keys)[2] = room.left;
    Tile(&values)[2] = room.right;
    const int lane = threadIdx.x % 32, row = part.row + (int)threadIdx.x / 32 * WARP_ROWS, length = part.length;
    fetch(room.own[0], at.q, at.stride, part.row, length);
    fetch(room.own[1], at.grad, at.stride, part.row, length);
    end_of_group();
    fetch(keys[0], at.k, at.stride, 0, length);
    fetch(values[0], at.v, at.v_stride, 0, length);
    end_of_group();
    wait_for_groups<1>();
    meet();
    const Left queries(room.own[0]), grads(room.own[1]);
    float log[2], dot[2], by_query[8][4];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int mine = row + lane / 4 + 8 * r;
        log[r] = mine < length ? at.logs[mine] : NEVER;
        dot[r] = mine < length ? at.dots[mine] : 0.0f;
    }
    clear(by_query);
    const int tiles = (length + TILE_ROWS - 1) / TILE_ROWS;
    for (int tile = 0; tile < tiles; tile++) {
        const int stage = tile % 2;
        if (tile + 1 < tiles) {
            fetch(keys[1 - stage], at.k, at.stride, (tile + 1) * TILE_ROWS, length);
            fetch(values[1 - stage], at.v, at.v_stride, (tile + 1) * TILE_ROWS, length);
        }
        end_of_group();
        wait_for_groups<1>();
        meet();
#pragma unroll
        for (int part_of_tile = 0; part_of_tile < 2; part_of_tile++) {
            const int base = part_of_tile * 32;
            float weights[4][4], slopes[4][4];
            begin_products();
            against_rows(weights, queries, keys[stage], base);
            against_rows(slopes, grads, values[stage], base);
            finish_products(weights, slopes);
            // Keys past the end are zeros, and so are their scores: beside others that are all far below zero they would weigh
            // more than any number holds. As long as it is a number, times zero it adds nothing below.
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const float weight = exp2_of(fminf(weights[n][i] * (at.scale * LOG2_E) - log[i / 2], 64.0f));
                    slopes[n][i] = weight * (slopes[n][i] - dot[i / 2]);
                }
            unsigned by_slope[2][4];
#pragma unroll
            for (int step = 0; step < 2; step++) as_weights(by_slope[step], slopes[2 * step], slopes[2 * step + 1]);
            begin_products(by_query, by_slope);
#pragma unroll
            for (int step = 0; step < 2; step++) over_rows(by_query, by_slope[step], keys[stage], base + step * 16);
            finish_products(by_query, by_slope);
        }
        __syncthreads();
    }
    write_rows(by_query, at.to, at.to_stride, at.cos, at.sin, row, length, at.scale);
}

extern "C" __global__ void __launch_bounds__(TILE_THREADS, 3) backward(
    const Element* __restrict__ q, const Element* __restrict__ k, const Element* __restrict__ v,
    const Element* __restrict__ grad,   // [rows, heads, DIM], of the output
    Utterances utterances, const float* __restrict__ logs, const float* __restrict__ dots,
    const float* __restrict__ cos, const float* __restrict__ sin,  // [rows, DIM / 2]
    Element* __restrict__ grad_qkv,     // [rows, 3, heads, DIM]
    int rows, int heads, int v_stride, float scale)
{
    extern __shared__ __align__(1024) unsigned char room_bytes[];
    Room& room = *reinterpret_cast<Room*>(room_bytes);
    Part part;
    const bool found = find_part(utterances, blockIdx.x, part);
    const int head = blockIdx.y, stride = heads * DIM;
    Element* const to = grad_qkv + head * DIM;  // queries, then keys and values
    if (blockIdx.z == 0) {
        clear_gaps(utterances, found, part, rows, to + stride, 3 * stride);
        clear_gaps(utterances, found, part, rows, to + 2 * stride, 3 * stride);
    } else {
        clear_gaps(utterances, found, part, rows, to, 3 * stride);
    }
    if (!found) return;
    const long long first = part.first, start = first * stride + head * DIM;
    Sides at;
    at.q = q + start, at.k = k + start, at.grad = grad + start;
    at.v = v + first * v_stride + head * DIM;
    at.logs = logs + (long long)head * rows + first, at.dots = dots + (long long)head * rows + first;
    at.cos = cos + first * (DIM / 2), at.sin = sin + first * (DIM / 2);
    at.to = to + first * 3 * stride;
    at.stride = stride, at.v_stride = v_stride, at.to_stride = 3 * stride, at.scale = scale;
    if (blockIdx.z == 0) {
        own_keys(at, part, room);
    } else {
        own_queries(at, part, room);
    }
}
