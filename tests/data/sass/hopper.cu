// One kernel per opcode family of sm_90a, none of them meant to run: the disassembly is what the tests read.
// Shapes and types are named in each kernel; every result is stored, so that the compiler keeps it.
#include <cstdint>

#define GMMA_BODY(shape_types, regs, args, ...)                                              \
  asm volatile("wgmma.fence.sync.aligned;\n");                                               \
  asm volatile("wgmma.mma_async.sync.aligned." shape_types " " regs ", " args ";\n" __VA_ARGS__); \
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n")

extern "C" __global__ void gmma_bf16_n8(float* out, uint64_t a, uint64_t b) {
  float d[4] = {};
  GMMA_BODY("m64n8k16.f32.bf16.bf16", "{%0,%1,%2,%3}", "%4, %5, 1, 1, 1, 0, 0",
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}

extern "C" __global__ void gmma_f16_n8(uint32_t* out, uint64_t a, uint64_t b) {
  uint32_t d[2] = {};
  GMMA_BODY("m64n8k16.f16.f16.f16", "{%0,%1}", "%2, %3, 1, 1, 1, 0, 0",
            : "+r"(d[0]), "+r"(d[1]) : "l"(a), "l"(b));
  for (int i = 0; i < 2; ++i) out[threadIdx.x * 2 + i] = d[i];
}

extern "C" __global__ void gmma_tf32_n8(float* out, uint64_t a, uint64_t b) {
  float d[4] = {};
  GMMA_BODY("m64n8k8.f32.tf32.tf32", "{%0,%1,%2,%3}", "%4, %5, 1, 1, 1",
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}

extern "C" __global__ void gmma_e4m3_n8(float* out, uint64_t a, uint64_t b) {
  float d[4] = {};
  GMMA_BODY("m64n8k32.f32.e4m3.e4m3", "{%0,%1,%2,%3}", "%4, %5, 1, 1, 1",
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}

extern "C" __global__ void gmma_s8_n8(int* out, uint64_t a, uint64_t b) {
  int d[4] = {};
  GMMA_BODY("m64n8k32.s32.s8.s8", "{%0,%1,%2,%3}", "%4, %5, 1",
            : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "l"(a), "l"(b));
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}

extern "C" __global__ void gmma_b1_n8(int* out, uint64_t a, uint64_t b) {
  int d[4] = {};
  GMMA_BODY("m64n8k256.s32.b1.b1.and.popc", "{%0,%1,%2,%3}", "%4, %5, 1",
            : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "l"(a), "l"(b));
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}

extern "C" __global__ void gmma_sparse_bf16_n8(float* out, uint64_t a, uint64_t b, uint32_t meta) {
  float d[4] = {};
  asm volatile("wgmma.fence.sync.aligned;\n");
  asm volatile("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, %6, 0, 1, 1, 1, 0, 0;\n"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b), "r"(meta));
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n");
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}

extern "C" __global__ void tma(uint64_t map, uint32_t smem, uint32_t bar, uint64_t global) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2}], [%3];"
               ::"r"(smem), "l"(map), "r"(0), "r"(bar) : "memory");
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %1}], [%2];"
               ::"l"(map), "r"(0), "r"(smem) : "memory");
  asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %1}], [%2];"
               ::"l"(map), "r"(0), "r"(smem) : "memory");
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %1}];" ::"l"(map), "r"(0) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];"
               ::"r"(smem), "l"(global), "r"(bar) : "memory");
  asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
}

extern "C" __global__ void dead_branch(float* out, uint64_t a, uint64_t b, int never) {
  float d[4] = {};
  if (never == 12345) {
    GMMA_BODY("m64n8k16.f32.bf16.bf16", "{%0,%1,%2,%3}", "%4, %5, 1, 1, 1, 0, 0",
              : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
  }
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}
