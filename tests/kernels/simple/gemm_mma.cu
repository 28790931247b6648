// C[M,N] = A[M,K] * B[N,K]^T, bf16 in and out, fp32 accumulation, by mma.sync, ldmatrix and cp.async: correct and
// fairly fast, but with instructions every GPU since Ampere has, none of the target families.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <cstdint>

namespace {

using bf16 = __nv_bfloat16;
constexpr int kTile = 128, kDepth = 64, kStages = 3, kThreads = 128;  // N a multiple of 128, K of 64; M is free
constexpr int kBytes = kTile * kDepth * 2;                            // one operand of one stage
constexpr int kSharedBytes = kStages * 2 * kBytes;

// Byte offset of 16-byte chunk `chunk` of row `row`; the xor keeps ldmatrix free of bank conflicts.
__device__ __forceinline__ uint32_t place(int row, int chunk) { return row * 128 + ((chunk ^ (row & 7)) << 4); }

// Copies 128 rows x 64 columns; rows from `rows` on become zero.
__device__ __forceinline__ void load_tile(uint32_t dst, const bf16* src, int rows, int pitch) {
  for (int i = threadIdx.x; i < kTile * 8; i += kThreads) {
    const int row = i / 8, chunk = i % 8;
    const bool inside = row < rows;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst + place(row, chunk)),
                 "l"(src + (size_t)(inside ? row : 0) * pitch + chunk * 8), "r"(inside ? 16 : 0)
                 : "memory");
  }
}

__device__ __forceinline__ void ldmatrix(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Adds the product of one stage to the 64 x 64 part of the tile that this warp owns.
__device__ __forceinline__ void multiply(float (&d)[4][8][4], uint32_t tile_a, uint32_t tile_b, int row, int col) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int step = 0; step < kDepth / 16; ++step) {
    uint32_t a[4][4], b[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      ldmatrix(a[i], tile_a + place(row + i * 16 + lane % 16, step * 2 + lane / 16));
      ldmatrix(b[i], tile_b + place(col + i * 16 + lane % 8 + lane / 16 * 8, step * 2 + lane / 8 % 2));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j) mma(d[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
  }
}

__global__ void __launch_bounds__(kThreads) gemm(const bf16* a, const bf16* b, bf16* c, int m, int n, int k) {
  extern __shared__ __align__(128) uint8_t shared[];
  const uint32_t base = (uint32_t)__cvta_generic_to_shared(shared);
  const int row = blockIdx.x * kTile, col = blockIdx.y * kTile;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_row = warp / 2 * 64, warp_col = warp % 2 * 64;
  const int slices = k / kDepth;
  auto fetch = [&](int slice) {
    if (slice < slices) {
      const uint32_t stage = base + slice % kStages * 2 * kBytes;
      load_tile(stage, a + (size_t)row * k + slice * kDepth, m - row, k);
      load_tile(stage + kBytes, b + (size_t)col * k + slice * kDepth, kTile, k);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };

  float d[4][8][4] = {};
  for (int slice = 0; slice < kStages - 1; ++slice) fetch(slice);
  for (int slice = 0; slice < slices; ++slice) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
    __syncthreads();  // this slice is there for all, and nobody reads the stage that is filled next any more
    fetch(slice + kStages - 1);
    const uint32_t stage = base + slice % kStages * 2 * kBytes;
    multiply(d, stage, stage + kBytes, warp_row, warp_col);
  }

  for (int i = 0; i < 4; ++i)
    for (int half = 0; half < 2; ++half) {
      const int out_row = row + warp_row + i * 16 + half * 8 + lane / 4;
      if (out_row >= m) continue;
      for (int j = 0; j < 8; ++j) {
        const int out_col = col + warp_col + j * 8 + lane % 4 * 2;
        *reinterpret_cast<__nv_bfloat162*>(c + (size_t)out_row * n + out_col) =
            __floats2bfloat162_rn(d[i][j][half * 2], d[i][j][half * 2 + 1]);
      }
    }
}

}  // namespace

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const int m = A.size(0), k = A.size(1), n = B.size(0);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(A.device().device_type, A.device().device_id));
  cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  gemm<<<dim3((m + kTile - 1) / kTile, n / kTile), kThreads, kSharedBytes, stream>>>(
      static_cast<const bf16*>(A.data_ptr()), static_cast<const bf16*>(B.data_ptr()), static_cast<bf16*>(C.data_ptr()),
      m, n, k);
  TVM_FFI_ICHECK(cudaGetLastError() == cudaSuccess) << "launch failed";
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
