// Calls every function of the knowledge pack's headers for Hopper.
#include "common.cuh"
#include "wgmma.cuh"

struct Operands {
  CUtensorMap a, b, across_a, across_b;  // [64, 64], [256, 64]; [64 of K, 64], [64 of K, 128]
};

// out += where [64, columns] begins; a thread writes its part of d there.
template <int kSize>
__device__ float* write(const float (&d)[kSize], float* out) {
  for (int i = 0; i < kSize; ++i) out[row_of(i) * kSize * 2 + col_of(i)] = d[i];
  return out + 64 * kSize * 2;
}

template <int kSize, class Multiply>
__device__ float* product(float* out, Multiply multiply) {
  float d[kSize];
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < 4; ++step) multiply(d, step);
  wgmma_commit();
  wgmma_wait<0>(d);
  return write(d, out);
}

// One warpgroup multiplies 64 rows in seven ways: out [64, 64], twice [64, 64] across, [64, 128], [64, 128] from
// registers, [64, 128] across, [64, 256].
__global__ void __launch_bounds__(128, 1)
    products(const __grid_constant__ Operands maps, const __nv_bfloat16* rows, float* out) {
  extern __shared__ uint8_t raw[];
  const uint32_t a = aligned_shared(raw), b = a + 8192, across_a = b + 32768, across_b = across_a + 8192;
  const uint32_t barrier = across_b + 16384;
  if (threadIdx.x == 0) {
    barrier_init(barrier, 1);
    barrier_fence();
    barrier_expect(barrier, 65536);
    tma_load(a, &maps.a, barrier, 0, 0);
    tma_load(b, &maps.b, barrier, 0, 0);
    tma_load(across_a, &maps.across_a, barrier, 0, 0);
    tma_load(across_b, &maps.across_b, barrier, 0, 0);
    tma_load(across_b + 8192, &maps.across_b, barrier, 64, 0);
  }
  uint32_t held[16];  // a as operands in registers: four for each 16 of K
  for (int i = 0; i < 16; ++i) {
    const __nv_bfloat16* pair = rows + row_of(2 * i) * 64 + col_of(2 * i);
    held[i] = pack(__bfloat162float(pair[0]), __bfloat162float(pair[1]));
  }
  __syncthreads();
  barrier_wait(barrier, 0);
  const uint64_t da = operand(a), db = operand(b), ta = operand_across(across_a, 8192);
  const uint64_t tb = operand_across(across_b, 8192);
  out = product<32>(out, [=](float (&d)[32], int k) { wgmma(d, da + 2 * k, db + 2 * k, k > 0); });
  out = product<32>(out, [=](float (&d)[32], int k) { wgmma<1, 1>(d, ta + 128 * k, tb + 128 * k, k > 0); });
  out = product<32>(out, [&](float (&d)[32], int k) { wgmma<1>(d, held + 4 * k, tb + 128 * k, k > 0); });
  out = product<64>(out, [=](float (&d)[64], int k) { wgmma(d, da + 2 * k, db + 2 * k, k > 0); });
  out = product<64>(out, [&](float (&d)[64], int k) { wgmma(d, held + 4 * k, db + 2 * k, k > 0); });
  out = product<64>(out, [=](float (&d)[64], int k) { wgmma<0, 1>(d, da + 2 * k, tb + 128 * k, k > 0); });
  out = product<128>(out, [=](float (&d)[128], int k) { wgmma(d, da + 2 * k, db + 2 * k, k > 0); });
}

void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView matrix, tvm::ffi::TensorView heads,
         tvm::ffi::TensorView out, tvm::ffi::TensorView sums, tvm::ffi::TensorView runs, tvm::ffi::TensorView sent,
         tvm::ffi::TensorView added, tvm::ffi::TensorView words, tvm::ffi::TensorView ring, tvm::ffi::TensorView a,
         tvm::ffi::TensorView b, tvm::ffi::TensorView across_a, tvm::ffi::TensorView across_b,
         tvm::ffi::TensorView result) {
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  const tvm::ffi::TensorView common[] = {x, y, matrix, heads, out, sums, runs, sent, added, words, ring};
  run_common(common, stream);
  const Operands maps{matrix_map(a.data_ptr(), 64, 64, 64), matrix_map(b.data_ptr(), 256, 64, 256),
                      matrix_map(across_a.data_ptr(), 64, 64, 64), matrix_map(across_b.data_ptr(), 64, 128, 64)};
  constexpr int kShared = 65536 + 1024 + 16;
  check(cudaFuncSetAttribute(products, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared), "shared memory");
  products<<<1, 128, kShared, stream>>>(maps, static_cast<const __nv_bfloat16*>(a.data_ptr()), Floats(result).data);
  check(cudaGetLastError(), "products");
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
