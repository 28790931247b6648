// tcgen05 and TMA of sm_100a, one kernel each, none of them meant to run: the disassembly is what the tests read.
#include <cstdint>

#define MMA(name, kind)                                                                                       \
  extern "C" __global__ void name(uint32_t tmem, uint64_t a, uint64_t b, uint32_t idesc, int accumulate) {    \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\n"                                                  \
                 "tcgen05.mma.cta_group::1.kind::" kind " [%0], %1, %2, %3, p;\n}"                            \
                 ::"r"(tmem), "l"(a), "l"(b), "r"(idesc), "r"(accumulate));                                   \
  }

MMA(mma_f16, "f16")
MMA(mma_tf32, "tf32")
MMA(mma_f8f6f4, "f8f6f4")
MMA(mma_i8, "i8")

extern "C" __global__ void mma_mxf4(uint32_t tmem, uint64_t a, uint64_t b, uint32_t idesc, uint32_t scale, int accumulate) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n"
               "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.scale_vec::2X [%0], %1, %2, %3, [%4], [%4], p;\n}"
               ::"r"(tmem), "l"(a), "l"(b), "r"(idesc), "r"(scale), "r"(accumulate));
}

extern "C" __global__ void mma_f16_pair(uint32_t tmem, uint64_t a, uint64_t b, uint32_t idesc, int accumulate) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\n"
               "tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, p;\n}"
               ::"r"(tmem), "l"(a), "l"(b), "r"(idesc), "r"(accumulate));
}

extern "C" __global__ void tensor_memory(uint32_t* out, uint32_t smem, uint32_t bar, uint64_t desc) {
  uint32_t v[4], tmem = out[0];
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 64;" ::"r"(smem) : "memory");
  asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(tmem), "r"(smem));
  asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
  asm volatile("tcgen05.cp.cta_group::1.128x256b [%0], %1;" ::"r"(tmem), "l"(desc));
  asm volatile("tcgen05.shift.cta_group::1.down [%0];" ::"r"(tmem));
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(bar) : "memory");
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(tmem));
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 64;" ::"r"(tmem));
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = v[i];
}

extern "C" __global__ void tma(uint64_t map, uint32_t smem, uint32_t bar) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2}], [%3];"
               ::"r"(smem), "l"(map), "r"(0), "r"(bar) : "memory");
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %1}], [%2];"
               ::"l"(map), "r"(0), "r"(smem) : "memory");
  asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
}
