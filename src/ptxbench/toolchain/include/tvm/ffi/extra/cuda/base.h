// The check of a call of the CUDA runtime.
#ifndef TVM_FFI_EXTRA_CUDA_BASE_H_
#define TVM_FFI_EXTRA_CUDA_BASE_H_

#include <cuda_runtime.h>
#include <tvm/ffi/error.h>

#define TVM_FFI_CHECK_CUDA_ERROR(stmt)                                                               \
  do {                                                                                               \
    const cudaError_t __err = (stmt);                                                                \
    if (__err != cudaSuccess) {                                                                      \
      TVM_FFI_THROW(RuntimeError) << "CUDA Runtime Error: " << cudaGetErrorName(__err) << " ("       \
                                  << static_cast<int>(__err) << "): " << cudaGetErrorString(__err);  \
    }                                                                                                \
  } while (0)

#endif  // TVM_FFI_EXTRA_CUDA_BASE_H_
