// Inline assembly for Blackwell whose copies repeat their labels and registers; compiled to PTX only.
#include <cstdint>

__device__ void wait(uint32_t barrier, int parity) {
  asm volatile(
      "{\n.reg .pred P1;\nLAB_WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n"
      "@P1 bra DONE;\nbra LAB_WAIT;\nDONE:\n}" ::"r"(barrier), "r"(parity)
      : "memory");
}

__global__ void __launch_bounds__(128) blackwell(float* out, const __grid_constant__ int4 map, unsigned long long matrix) {
  __shared__ alignas(16) uint32_t slot;
  __shared__ alignas(8) uint64_t bar;
  const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(&slot));
  const uint32_t barrier = static_cast<uint32_t>(__cvta_generic_to_shared(&bar));
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 128;" ::"r"(to) : "memory");
  const uint32_t columns = slot;
  asm volatile("{.reg .pred p; setp.ne.b32 p, %3, 0;\n tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %1, %2, p;}" ::"r"(columns),
               "l"(matrix), "r"(5), "r"(1));
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier) : "memory");
  wait(barrier, 0);
  wait(barrier, 1);
  uint32_t r[4];
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(columns));
  asm volatile("tcgen05.wait::ld.sync.aligned;");
  for (int i = 0; i < 4; i++) out[threadIdx.x * 4 + i] = __uint_as_float(r[i]) + map.x;
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %2, %2, %2}], [%3], {%4, %4};" ::"r"(to), "l"(&map), "r"(0), "r"(barrier), "h"(static_cast<short>(1))
      : "memory");
  unsigned long long pair;
  asm("add.rn.f32x2 %0, %1, %1;" : "=l"(pair) : "l"(matrix));
  reinterpret_cast<unsigned long long*>(out)[7] = pair;
  __syncthreads();
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 128;" ::"r"(columns));
}
