#pragma once
// Products of Blackwell (tcgen05, 9.7.16): bf16 operands, fp32 sums in tensor memory. kCtas: 1, or 2 for a pair of CTAs;
// a kernel uses one of them throughout. Addresses of tensor memory are lane << 16 | column.
#include <cuda.h>

#include <cstdint>

// A whole warp (for a pair: the same warp in both CTAs) allocates 32, 64, 128, 256 or 512 columns; the address of the
// first goes to shared memory at `slot`. It waits until they are free. The same warp frees them at the end.
template <int kCtas>
__device__ __forceinline__ void tmem_alloc(uint32_t slot, uint32_t columns) {
  asm volatile("tcgen05.alloc.cta_group::%2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(slot), "r"(columns),
               "n"(kCtas)
               : "memory");
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::%0.sync.aligned;" ::"n"(kCtas) : "memory");
}
template <int kCtas>
__device__ __forceinline__ void tmem_free(uint32_t address, uint32_t columns) {
  asm volatile("tcgen05.dealloc.cta_group::%2.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns), "n"(kCtas)
               : "memory");
}
// What tmem_alloc left; after a barrier between.
__device__ __forceinline__ uint32_t tmem_address(uint32_t slot) {
  uint32_t address;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(address) : "r"(slot) : "memory");
  return address;
}
// The warp's quarter of the lanes: warp w of any warpgroup reaches lanes 32 (w % 4) to 32 (w % 4) + 31 only.
__device__ __forceinline__ uint32_t own_lanes(uint32_t address) {
  return address + ((threadIdx.x / 32 % 4 * 32) << 16);
}

// Around every hand-over by mbarrier or __syncthreads: before one's own arrival, behind one's own wait.
__device__ __forceinline__ void fence_before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ __forceinline__ void fence_after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

// Operand in shared memory with the 128-byte swizzle whose inner dimension (K) runs along the lines of 64 elements: rows
// lie 128 bytes apart, groups of 8 rows 1024. Next 16 of K: + 2 (32 bytes in units of 16).
__device__ __forceinline__ uint64_t operand(uint32_t address) {
  return (uint64_t)((address & 0x3FFFF) >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 46 |
         (uint64_t)2 << 61;
}

// The same swizzle with M or N along the lines of 64 and K across them: `block` bytes lead from 64 of M or N to the next
// 64. Next 16 of K: + 128 (2048 bytes). Such an operand must be told to `instruction`.
__device__ __forceinline__ uint64_t operand_across(uint32_t address, uint32_t block) {
  return (uint64_t)((address & 0x3FFFF) >> 4) | (uint64_t)(block >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
         (uint64_t)1 << 46 | (uint64_t)2 << 61;
}

// fp32 sums of bf16 products, m x n x 16: m is 64 or 128 (pair: 128 or 256, of both CTAs), n a multiple of 16 up to 256.
__host__ __device__ constexpr uint32_t instruction(int m, int n, bool across_a = false, bool across_b = false) {
  return 1u << 4 | 1u << 7 | 1u << 10 | (uint32_t)across_a << 15 | (uint32_t)across_b << 16 | (uint32_t)(n / 8) << 17 |
         (uint32_t)(m / 16) << 24;
}

// d = a * b^T, plus the old d if `accumulate`; form: of `instruction`. One thread issues it; for a pair, one thread of the even CTA for both.
template <int kCtas>
__device__ __forceinline__ void multiply(uint32_t d, uint64_t a, uint64_t b, uint32_t form, bool accumulate) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %4, 0;\n\t"
      "tcgen05.mma.cta_group::%5.kind::f16 [%0], %1, %2, %3, p;\n\t}" ::"r"(d),
      "l"(a), "l"(b), "r"(form), "r"((uint32_t)accumulate), "n"(kCtas)
      : "memory");
}
// The same with a in tensor memory: row = lane, two bf16 in each column; next 16 of K: + 8 columns.
template <int kCtas>
__device__ __forceinline__ void multiply_tmem(uint32_t d, uint32_t a, uint64_t b, uint32_t form, bool accumulate) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %4, 0;\n\t"
      "tcgen05.mma.cta_group::%5.kind::f16 [%0], [%1], %2, %3, p;\n\t}" ::"r"(d),
      "r"(a), "l"(b), "r"(form), "r"((uint32_t)accumulate), "n"(kCtas)
      : "memory");
}

// One arrival at the barrier when all products that this thread issued before are done: the operands may be overwritten
// and d be read. The pair's goes to the barrier at this offset in both CTAs.
__device__ __forceinline__ void commit(uint32_t barrier) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier)
               : "memory");
}
__device__ __forceinline__ void commit_pair(uint32_t barrier) {
  constexpr uint16_t both = 3;
  asm volatile(
      "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(barrier),
      "h"(both)
      : "memory");
}

// A box to this CTA whose bytes are told to the barrier at this offset in the even CTA of the pair: bit 24 of a shared
// address is the lowest bit of the CTA's rank.
__device__ __forceinline__ void tma_load_pair(uint32_t dst, const CUtensorMap* map, uint32_t barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(dst),
      "l"(map), "r"(barrier & 0xFEFFFFFFu), "r"(x), "r"(y)
      : "memory");
}

#define OUT8(i) \
  "=r"(v[i]), "=r"(v[i + 1]), "=r"(v[i + 2]), "=r"(v[i + 3]), "=r"(v[i + 4]), "=r"(v[i + 5]), "=r"(v[i + 6]), \
      "=r"(v[i + 7])
#define IN8(i) \
  "r"(v[i]), "r"(v[i + 1]), "r"(v[i + 2]), "r"(v[i + 3]), "r"(v[i + 4]), "r"(v[i + 5]), "r"(v[i + 6]), "r"(v[i + 7])
#define REGS32 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"

// 32 or 64 columns of the lane's row from own_lanes(...) + column. The wait belongs to the statement, so that nothing
// uses a register before it.
__device__ __forceinline__ void load_row(uint32_t (&v)[32], uint32_t address) {
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 {" REGS32 "}, [%32];\n\ttcgen05.wait::ld.sync.aligned;"
               : OUT8(0), OUT8(8), OUT8(16), OUT8(24)
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_row(uint32_t (&v)[64], uint32_t address) {
  asm volatile(
      "tcgen05.ld.sync.aligned.32x32b.x64.b32 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, [%64];\n\t"
      "tcgen05.wait::ld.sync.aligned;"
      : OUT8(0), OUT8(8), OUT8(16), OUT8(24), OUT8(32), OUT8(40), OUT8(48), OUT8(56)
      : "r"(address)
      : "memory");
}

// Two fp32, as they come from tensor memory, to bf16.
__device__ __forceinline__ uint32_t pack(uint32_t low, uint32_t high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(__uint_as_float(high)), "f"(__uint_as_float(low)));
  return r;
}

// 32 columns of the lane's row. Before another thread is told: store_wait, then fence_before.
__device__ __forceinline__ void store_row(uint32_t address, const uint32_t (&v)[32]) {
  asm volatile(
      "tcgen05.st.sync.aligned.32x32b.x32.b32 [%32], {" REGS32 "};" ::IN8(0), IN8(8), IN8(16), IN8(24), "r"(address)
      : "memory");
}
__device__ __forceinline__ void store_wait() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }

// Two fp32 operations in one instruction: (x, y) each.
__device__ __forceinline__ float2 fma2(float2 a, float2 b, float2 c) {
  float2 d;
  asm("fma.rn.f32x2 %0, %1, %2, %3;"
      : "=l"(reinterpret_cast<uint64_t&>(d))
      : "l"(reinterpret_cast<uint64_t&>(a)), "l"(reinterpret_cast<uint64_t&>(b)), "l"(reinterpret_cast<uint64_t&>(c)));
  return d;
}
__device__ __forceinline__ float2 mul2(float2 a, float2 b) {
  float2 d;
  asm("mul.rn.f32x2 %0, %1, %2;"
      : "=l"(reinterpret_cast<uint64_t&>(d))
      : "l"(reinterpret_cast<uint64_t&>(a)), "l"(reinterpret_cast<uint64_t&>(b)));
  return d;
}
__device__ __forceinline__ float2 add2(float2 a, float2 b) {
  float2 d;
  asm("add.rn.f32x2 %0, %1, %2;"
      : "=l"(reinterpret_cast<uint64_t&>(d))
      : "l"(reinterpret_cast<uint64_t&>(a)), "l"(reinterpret_cast<uint64_t&>(b)));
  return d;
}

// 2^x of both by FMA, not by the special function unit: relative error 2^-18. The sum with 1.5 * 2^23 rounds x to a whole
// number and leaves it in the low bits; x <= 127, and below -125 counts as -125.
__device__ __forceinline__ float2 exp2_poly(float2 x) {
  x = make_float2(fmaxf(x.x, -125.f), fmaxf(x.y, -125.f));
  const float2 whole = add2(x, make_float2(12582912.f, 12582912.f));
  const float2 rest = add2(x, mul2(add2(whole, make_float2(-12582912.f, -12582912.f)), make_float2(-1.f, -1.f)));
  float2 p = fma2(rest, make_float2(0.009570102f, 0.009570102f), make_float2(0.055917859f, 0.055917859f));
  p = fma2(rest, p, make_float2(0.24024744f, 0.24024744f));
  p = fma2(rest, p, make_float2(0.69312179f, 0.69312179f));
  p = fma2(rest, p, make_float2(0.99999928f, 0.99999928f));
  return make_float2(__int_as_float(__float_as_int(p.x) + (__float_as_int(whole.x) << 23)),
                     __int_as_float(__float_as_int(p.y) + (__float_as_int(whole.y) << 23)));
}

// Work of clusters that have not started (clusterlaunchcontrol, 9.7.13): one thread asks, after barrier_expect(barrier,
// 16); the answer (16 bytes, 16-aligned) is the x of the first CTA of a cluster that will not start now, or -1: stop.
__device__ __forceinline__ void cluster_ask(uint32_t answer, uint32_t barrier) {
  asm volatile(
      "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];" ::"r"(answer),
      "r"(barrier)
      : "memory");
}
__device__ __forceinline__ int cluster_answer(uint32_t answer) {
  int x = -1;
  asm volatile(
      "{\n\t.reg .b128 r;\n\t.reg .pred p;\n\tld.shared.b128 r, [%1];\n\t"
      "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, r;\n\t"
      "@p clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %0, r;\n\t}"
      : "+r"(x)
      : "r"(answer)
      : "memory");
  return x;
}
