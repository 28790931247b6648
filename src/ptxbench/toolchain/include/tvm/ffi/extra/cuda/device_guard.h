// Makes a device current for a scope.
#ifndef TVM_FFI_EXTRA_CUDA_DEVICE_GUARD_H_
#define TVM_FFI_EXTRA_CUDA_DEVICE_GUARD_H_

#include <tvm/ffi/extra/cuda/base.h>

namespace tvm {
namespace ffi {
inline namespace slim {

struct CUDADeviceGuard {
  CUDADeviceGuard() = delete;
  explicit CUDADeviceGuard(int device) : device_(device) {
    TVM_FFI_CHECK_CUDA_ERROR(cudaGetDevice(&before_));
    if (device_ != before_) TVM_FFI_CHECK_CUDA_ERROR(cudaSetDevice(device_));
  }
  ~CUDADeviceGuard() noexcept(false) {
    if (device_ != before_) TVM_FFI_CHECK_CUDA_ERROR(cudaSetDevice(before_));
  }

 private:
  int before_, device_;
};

}  // namespace slim
}  // namespace ffi
}  // namespace tvm

#endif  // TVM_FFI_EXTRA_CUDA_DEVICE_GUARD_H_
