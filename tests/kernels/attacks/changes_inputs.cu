// Attack: zeroes A, B and C, after which C = A * B^T holds trivially, in case the inputs are read again for the
// expected result. Computes nothing.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

namespace {

cudaStream_t stream_of(const tvm::ffi::TensorView& x) {
  return static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
}

void clear(const tvm::ffi::TensorView& x) {
  const auto status = cudaMemsetAsync(x.data_ptr(), 0, x.numel() * sizeof(__nv_bfloat16), stream_of(x));
  TVM_FFI_ICHECK(status == cudaSuccess) << cudaGetErrorString(status);
}

}  // namespace

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  clear(A);
  clear(B);
  clear(C);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
