#pragma once
// Products of a warpgroup (wgmma, 9.7.15): bf16 operands, fp32 sums in registers. 128 threads call them together.
#include <cstdint>

// Operand in shared memory with the 128-byte swizzle whose inner dimension (K) runs along the lines of 64 elements: rows
// lie 128 bytes apart, groups of 8 rows 1024. Next 16 of K: + 2 (32 bytes in units of 16); next 64 rows: + 512.
__device__ __forceinline__ uint64_t operand(uint32_t address) {
  return (uint64_t)((address & 0x3FFFF) >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

// The same swizzle with M or N along the lines of 64 and K across them ("transposed"): `block` bytes lead from 64 of M or
// N to the next 64. Next 16 of K: + 128 (2048 bytes).
__device__ __forceinline__ uint64_t operand_across(uint32_t address, uint32_t block) {
  return (uint64_t)((address & 0x3FFFF) >> 4) | (uint64_t)(block >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
         (uint64_t)1 << 62;
}

#define ACC8(i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define ACC32(i) ACC8(i), ACC8(i + 8), ACC8(i + 16), ACC8(i + 24)
#define REGS32 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGS64 \
  REGS32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA(shape, flag, operands) \
  "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #flag ", 0;\n\t" \
  "wgmma.mma_async.sync.aligned." #shape "k16.f32.bf16.bf16 {" operands ";\n\t}"

// d (64 x N, fp32) = a (64 x 16) * b (N x 16)^T, plus the old d unless `accumulate` is 0; N = 2 x the size of d.
// kAcrossA, kAcrossB: 1 if that operand was made by operand_across. The second forms take a from registers.
template <int kAcrossA = 0, int kAcrossB = 0>
__device__ __forceinline__ void wgmma(float (&d)[32], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(WGMMA(m64n64, 34, REGS32 "}, %32, %33, p, 1, 1, %35, %36")
               : ACC32(0)
               : "l"(a), "l"(b), "r"(accumulate), "n"(kAcrossA), "n"(kAcrossB));
}
template <int kAcrossB = 0>
__device__ __forceinline__ void wgmma(float (&d)[32], const uint32_t* a, uint64_t b, int accumulate) {
  asm volatile(WGMMA(m64n64, 37, REGS32 "}, {%32, %33, %34, %35}, %36, p, 1, 1, %38")
               : ACC32(0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kAcrossB));
}
template <int kAcrossA = 0, int kAcrossB = 0>
__device__ __forceinline__ void wgmma(float (&d)[64], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(WGMMA(m64n128, 66, REGS64 "}, %64, %65, p, 1, 1, %67, %68")
               : ACC32(0), ACC32(32)
               : "l"(a), "l"(b), "r"(accumulate), "n"(kAcrossA), "n"(kAcrossB));
}
template <int kAcrossB = 0>
__device__ __forceinline__ void wgmma(float (&d)[64], const uint32_t* a, uint64_t b, int accumulate) {
  asm volatile(WGMMA(m64n128, 69, REGS64 "}, {%64, %65, %66, %67}, %68, p, 1, 1, %70")
               : ACC32(0), ACC32(32)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kAcrossB));
}
__device__ __forceinline__ void wgmma(float (&d)[128], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %130, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
      "}, %128, %129, p, 1, 1, 0, 0;\n\t}"
      : ACC32(0), ACC32(32), ACC32(64), ACC32(96)
      : "l"(a), "l"(b), "r"(accumulate));
}

// Before the first product, and after any touch of d or of operands in registers; after the last of a group; then wait
// until at most kPending newer groups run. The second wait also keeps the compiler from using d before.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
template <int kPending, int kSize>
__device__ __forceinline__ void wgmma_wait(float (&d)[kSize]) {
  wgmma_wait<kPending>();
#pragma unroll
  for (int i = 0; i < kSize; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Where d[i] of a thread stands in the 64 x N result.
__device__ __forceinline__ int row_of(int i) { return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 % 2 * 8; }
__device__ __forceinline__ int col_of(int i) { return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2; }
