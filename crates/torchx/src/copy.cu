// Copies several stretches of memory in one launch: one after the other they take a few microseconds each, whatever their size.

constexpr int MOST = 8;  // as in stream.rs

// Of each stretch, or of none where there are fewer: where it lies, where it goes, its 4-byte words, and how many pieces of
// 16 bytes it and those before it have.
struct Stretches {
    const unsigned* from[MOST];
    unsigned* to[MOST];
    long long words[MOST], end[MOST];
};

extern "C" __global__ void copy(const __grid_constant__ Stretches all) {
    const long long piece = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    int mine = 0;
    while (mine < MOST && piece >= all.end[mine]) mine++;
    if (mine == MOST) return;
    const long long first = (piece - (mine > 0 ? all.end[mine - 1] : 0)) * 4, words = all.words[mine];
    const unsigned* from = all.from[mine] + first;
    unsigned* to = all.to[mine] + first;
    if (first + 4 <= words) {
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    } else {
        for (int i = 0; first + i < words; i++) to[i] = from[i];
    }
}
