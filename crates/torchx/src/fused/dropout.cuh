// Dropout without a stored mask: what is dropped follows from the step's seed, the number of the layer and the place of
// the element, so the backward pass finds it again. Philox 4x32 of 7 rounds (Salmon et al. 2011).

struct Dropout {
    const unsigned* seed;  // two words, or none: nothing is dropped
    int layer;
    int threshold;         // of 65536
    float scale;           // of what stays

    // Applies to the vector of that number, counted over the whole tensor.
    __device__ void operator()(float (&values)[VECTOR], unsigned vector) const {
        if (!seed) return;
        unsigned words[4] = {vector, (unsigned)layer, 0u, 0u}, keys[2] = {seed[0], seed[1]};
#pragma unroll
        for (int round = 0; round < 7; round++) {
            const unsigned high[2] = {__umulhi(0xD2511F53u, words[0]), __umulhi(0xCD9E8D57u, words[2])};
            const unsigned low[2] = {0xD2511F53u * words[0], 0xCD9E8D57u * words[2]};
            words[0] = high[1] ^ words[1] ^ keys[0];
            words[1] = low[1];
            words[2] = high[0] ^ words[3] ^ keys[1];
            words[3] = low[0];
            keys[0] += 0x9E3779B9u;
            keys[1] += 0xBB67AE85u;
        }
#pragma unroll
        for (int i = 0; i < VECTOR; i++) {
            const int drawn = words[i % 4] >> (i / 4 * 16) & 0xffffu;
            values[i] = drawn < threshold ? 0.0f : values[i] * scale;
        }
    }
};
