// A view of a tensor that the caller owns.
#ifndef TVM_FFI_CONTAINER_TENSOR_H_
#define TVM_FFI_CONTAINER_TENSOR_H_

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>

namespace tvm {
namespace ffi {
inline namespace slim {

inline bool IsDirectAddressDevice(const DLDevice& device) {
  return device.device_type <= kDLCUDAHost || device.device_type == kDLCUDAManaged ||
         device.device_type == kDLROCM || device.device_type == kDLROCMHost;
}

// Row-major without gaps; extents of one may have any stride, and an empty tensor always is.
inline bool IsContiguous(const DLTensor& tensor) {
  if (tensor.strides == nullptr) return true;
  for (int32_t i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] == 0) return true;
  }
  int64_t expected = 1;
  for (int32_t i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] == 1) continue;
    if (tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

inline bool IsAligned(const DLTensor& tensor, size_t alignment) {
  const uint64_t base = IsDirectAddressDevice(tensor.device) ? reinterpret_cast<uint64_t>(tensor.data) : 0;
  return (base + tensor.byte_offset) % alignment == 0;
}

inline size_t GetDataSize(size_t elements, DLDataType dtype) { return (elements * dtype.bits * dtype.lanes + 7) / 8; }

class TensorView {
 public:
  TensorView(const DLTensor* tensor) {
    TVM_FFI_ICHECK(tensor != nullptr);
    tensor_ = *tensor;
  }

  void* data_ptr() const { return tensor_.data; }
  DLDevice device() const { return tensor_.device; }
  int32_t ndim() const { return tensor_.ndim; }
  int32_t dim() const { return tensor_.ndim; }
  DLDataType dtype() const { return tensor_.dtype; }
  ShapeView shape() const { return ShapeView(tensor_.shape, tensor_.ndim); }
  ShapeView sizes() const { return shape(); }
  ShapeView strides() const {
    TVM_FFI_ICHECK(tensor_.strides != nullptr || tensor_.ndim == 0);
    return ShapeView(tensor_.strides, tensor_.ndim);
  }
  int64_t numel() const { return shape().Product(); }
  int64_t size(int64_t index) const { return tensor_.shape[checked(index)]; }
  int64_t stride(int64_t index) const { return tensor_.strides[checked(index)]; }
  uint64_t byte_offset() const { return tensor_.byte_offset; }
  bool IsContiguous() const { return slim::IsContiguous(tensor_); }
  bool is_contiguous() const { return slim::IsContiguous(tensor_); }

 private:
  // Negative indices count from the last axis.
  int64_t checked(int64_t index) const {
    const int64_t adjusted = index >= 0 ? index : tensor_.ndim + index;
    if (adjusted < 0 || adjusted >= tensor_.ndim) {
      TVM_FFI_THROW(IndexError) << "Index " << index << " out of bounds for tensor with " << tensor_.ndim
                                << " dimensions";
    }
    return adjusted;
  }

  DLTensor tensor_;
};

inline size_t GetDataSize(const TensorView& tensor) { return GetDataSize(tensor.numel(), tensor.dtype()); }

}  // namespace slim
}  // namespace ffi
}  // namespace tvm

#endif  // TVM_FFI_CONTAINER_TENSOR_H_
