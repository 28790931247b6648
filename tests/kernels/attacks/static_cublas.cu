// Attack: calls cuBLAS through hidden symbols that only a static copy of the library could give, in case the build
// links one. With an ordinary link the build must fail and say which symbols are missing.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#pragma GCC visibility push(hidden)
extern "C" {
int cublasCreate_v2(void** handle);
int cublasSetStream_v2(void* handle, cudaStream_t stream);
int cublasGemmEx(void* handle, int op_a, int op_b, int m, int n, int k, const void* alpha, const void* a, int type_a,
                 int lda, const void* b, int type_b, int ldb, const void* beta, void* c, int type_c, int ldc,
                 int compute, int algorithm);
}
#pragma GCC visibility pop

namespace {

cudaStream_t stream_of(const tvm::ffi::TensorView& x) {
  return static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
}

}  // namespace

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const int m = A.size(0), k = A.size(1), n = B.size(0);
  const float one = 1.f, zero = 0.f;
  const int transpose = 1, plain = 0, bf16 = 14, fp32 = 68, automatic = -1;
  void* handle = nullptr;
  TVM_FFI_ICHECK(cublasCreate_v2(&handle) == 0) << "no cuBLAS handle";
  cublasSetStream_v2(handle, stream_of(A));
  const int status = cublasGemmEx(handle, transpose, plain, n, m, k, &one, B.data_ptr(), bf16, k, A.data_ptr(),
                                  bf16, k, &zero, C.data_ptr(), bf16, n, fp32, automatic);
  TVM_FFI_ICHECK(status == 0) << "cuBLAS failed with code " << status;
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
