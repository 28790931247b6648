// C[M,N] = A[M,K] * B[N,K]^T, bf16 in and out, fp32 arithmetic on the ordinary cores: correct, with none of the target
// families.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

namespace {

constexpr int kTile = 128, kDepth = 16, kThreads = 256;  // N a multiple of 128, K of 16; M is free

// Each thread computes an 8 x 8 part of a 128 x 128 tile; A and B wait transposed in shared memory.
__global__ void __launch_bounds__(kThreads) gemm(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c,
                                                 int m, int n, int k) {
  __shared__ float tile_a[kDepth][kTile], tile_b[kDepth][kTile];
  const int row = blockIdx.y * kTile, col = blockIdx.x * kTile, thread = threadIdx.x;
  const int load_row = thread / 2, load_k = thread % 2 * 8;
  const int mine_row = thread / 16 * 8, mine_col = thread % 16 * 8;
  const bool inside = row + load_row < m;
  float sum[8][8] = {};
  for (int step = 0; step < k; step += kDepth) {
    for (int i = 0; i < 8; ++i) {
      const size_t at = step + load_k + i;
      tile_a[load_k + i][load_row] = inside ? __bfloat162float(a[(size_t)(row + load_row) * k + at]) : 0.f;
      tile_b[load_k + i][load_row] = __bfloat162float(b[(size_t)(col + load_row) * k + at]);
    }
    __syncthreads();
    for (int d = 0; d < kDepth; ++d) {
      float x[8], y[8];
      for (int i = 0; i < 8; ++i) x[i] = tile_a[d][mine_row + i], y[i] = tile_b[d][mine_col + i];
      for (int i = 0; i < 8; ++i)
        for (int j = 0; j < 8; ++j) sum[i][j] += x[i] * y[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < 8 && row + mine_row + i < m; ++i)
    for (int j = 0; j < 8; ++j) {
      c[(size_t)(row + mine_row + i) * n + col + mine_col + j] = __float2bfloat16(sum[i][j]);
    }
}

}  // namespace

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const int m = A.size(0), k = A.size(1), n = B.size(0);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(A.device().device_type, A.device().device_id));
  gemm<<<dim3(n / kTile, (m + kTile - 1) / kTile), kThreads, 0, stream>>>(
      static_cast<const __nv_bfloat16*>(A.data_ptr()), static_cast<const __nv_bfloat16*>(B.data_ptr()),
      static_cast<__nv_bfloat16*>(C.data_ptr()), m, n, k);
  TVM_FFI_ICHECK(cudaGetLastError() == cudaSuccess) << "launch failed";
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
