// Functions that reach every part of the slim headers; built with them and with the real ones, they must behave alike.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <stdexcept>
#include <string>

using tvm::ffi::TensorView;

void describe(TensorView t, const TensorView& out) {
  auto* to = static_cast<int64_t*>(out.data_ptr());
  int at = 0;
  for (int64_t value : {int64_t(t.ndim()), int64_t(t.dim()), t.numel(), int64_t(t.dtype().code), int64_t(t.dtype().bits),
                        int64_t(t.dtype().lanes), int64_t(t.device().device_type), int64_t(t.device().device_id),
                        int64_t(t.is_contiguous()), int64_t(t.IsContiguous()), int64_t(t.byte_offset()),
                        int64_t(t.shape().size()), int64_t(t.sizes().empty()), t.shape().Product(), t.size(-1), t.stride(-1),
                        t.size(0), t.stride(0), t.shape().back(), t.strides().front(), int64_t(GetDataSize(t)),
                        int64_t(t.dtype() == DLDataType{kDLFloat, 32, 1}), int64_t(t.dtype() != DLDataType{kDLInt, 64, 1})})
    to[at++] = value;
  for (int64_t extent : t.shape()) to[at++] = extent;
  for (int64_t stride : t.strides()) to[at++] = stride;
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(describe, describe);

double mixed(int64_t a, int32_t b, double c, float d, bool e) { return a + b * 2.0 + c * 4.0 + d * 8.0 + (e ? 16.0 : 0.0); }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(mixed, mixed);

int64_t whole(int64_t a) { return a + 1; }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(whole, whole);
int32_t narrow(int32_t a) { return a; }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(narrow, narrow);
uint8_t byte(uint8_t a) { return a; }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(byte, byte);
bool flag(bool a) { return !a; }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(flag, flag);
float single(float a) { return a / 3; }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(single, single);
void nothing() {}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(nothing, nothing);

const auto lambda = [](const int64_t& a, TensorView t) { return a + t.ndim(); };
TVM_FFI_DLL_EXPORT_TYPED_FUNC(functor, lambda);

enum Colour { kRed = 7 };

void streams(int64_t which) {
  const std::string text = "text";
  const void* null = nullptr;
  switch (which) {
    case 0: TVM_FFI_THROW(ValueError) << "plain " << text << ' ' << 'c' << " " << "literal";
    case 1: TVM_FFI_THROW(TypeError) << 1 << " " << -2L << " " << 3u << " " << 4ull << " " << short(5) << " " << size_t(6);
    case 2: TVM_FFI_THROW(RuntimeError) << 1.5 << " " << 0.1f << " " << 1e30 << " " << 1234567.0 << " " << 1e-9 << " " << 3.0;
    case 3: TVM_FFI_THROW(IndexError) << true << " " << false << " " << kRed << " " << int8_t('x') << uint8_t('y');
    case 4: TVM_FFI_THROW(InternalError) << null << " " << kDLCUDA << " " << reinterpret_cast<void*>(0x1234);
    case 5: TVM_FFI_THROW(MadeUpKind) << "";
    case 6: throw std::runtime_error("from the C++ library");
    case 7: throw tvm::ffi::Error("KeyError", "constructed", "");
    default: return;
  }
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(streams, streams);

int64_t checks(int64_t which, int64_t a, int64_t b) {
  const size_t unsigned_a = a;
  int64_t* pointer = a ? &a : nullptr;
  switch (which) {
    case 0: TVM_FFI_ICHECK(a == b) << "because " << a; break;
    case 1: TVM_FFI_CHECK(a == b, ValueError) << "of value"; break;
    case 2: TVM_FFI_ICHECK_EQ(a, b) << "eq"; break;
    case 3: TVM_FFI_ICHECK_NE(a, b); break;
    case 4: TVM_FFI_ICHECK_LT(a, b) << "lt"; break;
    case 5: TVM_FFI_ICHECK_LE(a, b) << "le"; break;
    case 6: TVM_FFI_ICHECK_GT(unsigned_a, 5) << "gt"; break;
    case 7: TVM_FFI_ICHECK_GE(a, 3) << "ge"; break;
    case 8: TVM_FFI_CHECK_EQ(a + 1, 8, TypeError) << "sum"; break;
    case 9: TVM_FFI_ICHECK_NOTNULL(pointer); break;
    default: return -1;
  }
  return which;
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(checks, checks);

int64_t caught(TensorView t, int64_t index) {
  try {
    return t.size(index) + t.stride(index) + t.shape().at(index);
  } catch (const tvm::ffi::Error& error) {
    return -static_cast<int64_t>(std::string(error.what()).size());
  }
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(caught, caught);

int64_t outside(TensorView t, int64_t index) { return t.shape().at(index); }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(outside, outside);

int64_t stream() { return reinterpret_cast<int64_t>(TVMFFIEnvGetStream(kDLCUDA, 0)); }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(stream, stream);
