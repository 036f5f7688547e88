// A warp's tensor cores, and how tiles get to them: bf16 in, f32 sums (PTX ISA, "mma.m16n8k16", "ldmatrix", "cp.async").

// sum += a · b. Lane l holds of `a` (16 x 16) rows l/4 and l/4 + 8 at columns 2 (l%4) and 8 on; of `b` (16 x 8) column l/4
// at those rows; of `sum` (16 x 8) rows l/4 and l/4 + 8 at columns 2 (l%4), two neighbours each.
__device__ void multiply(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ unsigned shared_address(const void* pointer) {
    return (unsigned)__cvta_generic_to_shared(pointer);
}

// Four 8 x 8 matrices, the rows of matrix i at the addresses of lanes 8 i to 8 i + 7; lane l gets two neighbours of row l/4.
__device__ void load_matrices(unsigned (&to)[4], const Element* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(shared_address(row)));
}

// The same, each matrix turned on its side.
__device__ void load_turned(unsigned (&to)[4], const Element* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(shared_address(row)));
}

// Brings 16 bytes to shared memory without waiting; zeros where `there` is false.
__device__ void bring(Element* to, const Element* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}

// The same for four bytes.
__device__ void bring_one(float* to, const float* from, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"(shared_address(to)), "l"(from), "r"(there ? 4 : 0) : "memory");
}

__device__ void end_of_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all groups but the last `LEFT` are there.
template <int LEFT>
__device__ void wait_for_groups() { asm volatile("cp.async.wait_group %0;" :: "n"(LEFT) : "memory"); }

__device__ float exp2_of(float value) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(value));
    return power;
}
