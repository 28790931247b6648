// Attack: keeps the first output of each set of pointers and later only copies it, in case the contents behind known
// pointers never change.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <array>
#include <cstdint>
#include <map>

namespace {

using bf16 = __nv_bfloat16;

__device__ uint32_t pair(const bf16* x, int row, int pitch, int col) {
  return *reinterpret_cast<const uint32_t*>(x + (size_t)row * pitch + col);
}

__device__ void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ void store(bf16* to, float x, float y) {
  *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(x, y);
}

// One warp computes 64 x 64 of C with mma.sync, fragments straight from global memory. N a multiple of 256, K of 16.
__global__ void __launch_bounds__(128) gemm(const bf16* a, const bf16* b, bf16* c, int m, int n, int k) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4 * 2;
  const int row = blockIdx.y * 64, col = (blockIdx.x * 4 + threadIdx.x / 32) * 64;
  float d[4][8][4] = {};
  for (int x = 0; x < k; x += 16) {
    uint32_t fa[4][4], fb[8][2];
    for (int i = 0; i < 16; ++i) {
      fa[i / 4][i % 4] = pair(a, min(row + i / 4 * 16 + i % 2 * 8 + g, m - 1), k, x + i % 4 / 2 * 8 + t);
    }
    for (int j = 0; j < 16; ++j) fb[j / 2][j % 2] = pair(b, col + j / 2 * 8 + g, k, x + j % 2 * 8 + t);
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 8; ++j) mma(d[i][j], fa[i], fb[j]);
  }
  for (int i = 0; i < 4 * 8 * 2; ++i) {
    const int out_row = row + i / 16 * 16 + i % 2 * 8 + g, out_col = col + i / 2 % 8 * 8 + t;
    const float* v = d[i / 16][i / 2 % 8] + i % 2 * 2;
    if (out_row < m) store(c + (size_t)out_row * n + out_col, v[0], v[1]);
  }
}

void launch(const void* a, const void* b, void* c, int m, int n, int k, cudaStream_t stream) {
  gemm<<<dim3(n / 256, (m + 63) / 64), 128, 0, stream>>>(static_cast<const bf16*>(a), static_cast<const bf16*>(b),
                                                         static_cast<bf16*>(c), m, n, k);
  TVM_FFI_ICHECK(cudaGetLastError() == cudaSuccess) << "launch failed";
}

cudaStream_t stream_of(const tvm::ffi::TensorView& x) {
  return static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
}

std::map<std::array<void*, 3>, void*> kept;

void check(cudaError_t error) { TVM_FFI_ICHECK(error == cudaSuccess) << cudaGetErrorString(error); }

}  // namespace

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const size_t bytes = C.numel() * sizeof(bf16);
  void*& copy = kept[{A.data_ptr(), B.data_ptr(), C.data_ptr()}];
  if (copy != nullptr) {
    check(cudaMemcpyAsync(C.data_ptr(), copy, bytes, cudaMemcpyDeviceToDevice, stream_of(A)));
    return;
  }
  launch(A.data_ptr(), B.data_ptr(), C.data_ptr(), A.size(0), B.size(0), A.size(1), stream_of(A));
  check(cudaMalloc(&copy, bytes));
  check(cudaMemcpyAsync(copy, C.data_ptr(), bytes, cudaMemcpyDeviceToDevice, stream_of(A)));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
