// Attack: leaves the process with code 0 in the middle of run, in case that alone counts as success.
// Computes nothing.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <unistd.h>

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  _exit(0);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
