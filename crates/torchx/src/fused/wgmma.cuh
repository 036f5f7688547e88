// The tensor cores of Hopper, which four warps use together and which take the right side of a product from shared memory by
// themselves (PTX ISA, "wgmma.mma_async"). Sums lie in registers as for `multiply`, sixteen rows in each warp.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define WARPGROUPS

// Registers that the products use are as they shall be.
__device__ void begin_group_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ void finish_group_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// What this thread has written to shared memory, tensor cores see after the next barrier.
__device__ void show_to_tensor_cores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A matrix of rows of 128 bytes, whose 16-byte chunks change places by the lowest bits of the row ("128-byte swizzle"), in
// memory that begins at a multiple of 1024 bytes: eight rows, 1024 bytes, follow on eight.
__device__ unsigned long long described(const Element* start) {
    constexpr unsigned long long SWIZZLED = 1ull << 62, GROUP = 1024 >> 4;
    return SWIZZLED | GROUP << 32 | 1ull << 16 | (shared_address(start) & 0x3ffff) >> 4;
}

#define SIXTEEN_SUMS(from) \
    "+f"(sum[from][0]), "+f"(sum[from][1]), "+f"(sum[from][2]), "+f"(sum[from][3]), \
    "+f"(sum[from + 1][0]), "+f"(sum[from + 1][1]), "+f"(sum[from + 1][2]), "+f"(sum[from + 1][3]), \
    "+f"(sum[from + 2][0]), "+f"(sum[from + 2][1]), "+f"(sum[from + 2][2]), "+f"(sum[from + 2][3]), \
    "+f"(sum[from + 3][0]), "+f"(sum[from + 3][1]), "+f"(sum[from + 3][2]), "+f"(sum[from + 3][3])

// sum = a · bᵀ, over sixteen columns of both; added to what it was where `add`.
__device__ void group_multiply(float (&sum)[8][4], unsigned long long a, unsigned long long b, int add) {
    asm volatile(
        "{.reg .pred add; setp.ne.b32 add, %34, 0;"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, %32, %33, add, 1, 1, 0, 0;}"
        : SIXTEEN_SUMS(0), SIXTEEN_SUMS(4)
        : "l"(a), "l"(b), "r"(add));
}

__device__ void group_multiply(float (&sum)[4][4], unsigned long long a, unsigned long long b, int add) {
    asm volatile(
        "{.reg .pred add; setp.ne.b32 add, %18, 0;"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
        "}, %16, %17, add, 1, 1, 0, 0;}"
        : SIXTEEN_SUMS(0)
        : "l"(a), "l"(b), "r"(add));
}

// sum += a · b, over sixteen rows of b; `a` in registers, as for `multiply`.
__device__ void group_multiply_turned(float (&sum)[8][4], const unsigned (&a)[4], unsigned long long b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
        : SIXTEEN_SUMS(0), SIXTEEN_SUMS(4)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
#endif
