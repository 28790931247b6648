// Exporting a function of tensor views and numbers under the calling convention of libtvm_ffi.
#ifndef TVM_FFI_FUNCTION_H_
#define TVM_FFI_FUNCTION_H_

#include <tvm/ffi/c_api.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>

#include <initializer_list>
#include <type_traits>
#include <utility>

namespace tvm {
namespace ffi {
inline namespace slim {
namespace detail {

// How a type travels: its name in messages, whether a value can become one, and the conversion. Types that are not
// here do not compile.
template <typename Type, typename = void>
struct Convert;

template <>
struct Convert<TensorView> {
  static constexpr const char* kName = "DLTensor*";
  static bool accepts(const TVMFFIAny& any) {
    return any.type_index == kTVMFFIDLTensorPtr || any.type_index == kTVMFFITensor;
  }
  static TensorView get(const TVMFFIAny& any) {
    return any.type_index == kTVMFFITensor ? TVMFFITensorGetDLTensorPtr(any.v_obj) : static_cast<DLTensor*>(any.v_ptr);
  }
};

template <typename Type>
struct Convert<Type, std::enable_if_t<std::is_integral<Type>::value>> {
  static constexpr bool kBool = std::is_same<Type, bool>::value;
  static constexpr const char* kName = kBool ? "bool" : "int";
  static bool accepts(const TVMFFIAny& any) { return any.type_index == kTVMFFIInt || any.type_index == kTVMFFIBool; }
  static Type get(const TVMFFIAny& any) { return static_cast<Type>(any.v_int64); }
  static void put(Type value, TVMFFIAny* any) {
    any->type_index = kBool ? kTVMFFIBool : kTVMFFIInt;
    any->v_int64 = static_cast<int64_t>(value);
  }
};

template <typename Type>
struct Convert<Type, std::enable_if_t<std::is_floating_point<Type>::value>> {
  static constexpr const char* kName = "float";
  static bool accepts(const TVMFFIAny& any) {
    return any.type_index == kTVMFFIFloat || any.type_index == kTVMFFIInt || any.type_index == kTVMFFIBool;
  }
  static Type get(const TVMFFIAny& any) {
    return static_cast<Type>(any.type_index == kTVMFFIFloat ? any.v_float64 : static_cast<double>(any.v_int64));
  }
  static void put(Type value, TVMFFIAny* any) {
    any->type_index = kTVMFFIFloat;
    any->v_float64 = static_cast<double>(value);
  }
};

template <typename Type>
using Plain = std::remove_const_t<std::remove_reference_t<Type>>;

template <typename Result>
struct ResultName {
  static constexpr const char* kName = Convert<Result>::kName;
};
template <>
struct ResultName<void> {
  static constexpr const char* kName = "void";
};

template <typename Result, typename... Arguments>
struct Typed {
  static_assert(((!std::is_lvalue_reference<Arguments>::value ||
                  std::is_const<std::remove_reference_t<Arguments>>::value) && ...),
                "an argument is a value or a reference to const");

  static Message signature(const char* name) {
    Message text(name);
    const char* separator = "";
    int index = 0;
    text << "(";
    ((text << separator << index++ << ": " << Convert<Plain<Arguments>>::kName, separator = ", "), ...);
    text << ") -> " << ResultName<Result>::kName;
    return text;
  }

  template <typename Function, size_t... Index>
  static void call(const char* name, const Function& function, const TVMFFIAny* args, int32_t count, TVMFFIAny* result,
                   std::index_sequence<Index...>) {
    constexpr int32_t kExpected = sizeof...(Arguments);
    if (count != kExpected) {
      TVM_FFI_THROW(TypeError) << "Mismatched number of arguments when calling: `" << signature(name).text()
                               << "`. Expected " << kExpected << " but got " << count << " arguments";
    }
    require(name, args, {Convert<Plain<Arguments>>::accepts(args[Index])...});
    if constexpr (std::is_void<Result>::value) {
      function(Convert<Plain<Arguments>>::get(args[Index])...);
    } else {
      Convert<Result>::put(function(Convert<Plain<Arguments>>::get(args[Index])...), result);
    }
  }

  // Of several unfit arguments the last is named, as g++ converts the last one first.
  static void require(const char* name, const TVMFFIAny* args, std::initializer_list<bool> fits) {
    const char* const names[] = {Convert<Plain<Arguments>>::kName..., ""};
    for (int index = static_cast<int>(sizeof...(Arguments)) - 1; index >= 0; --index) {
      if (fits.begin()[index]) continue;
      TVM_FFI_THROW(TypeError) << "Mismatched type on argument #" << index << " when calling: `"
                               << signature(name).text() << "`. Expected `" << names[index] << "` but got `"
                               << TVMFFIGetTypeInfo(args[index].type_index)->type_key.data << '`';
    }
  }
};

template <typename Result, typename... Arguments>
void Call(const char* name, Result (*function)(Arguments...), const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  Typed<Result, Arguments...>::call(name, function, args, count, result, std::index_sequence_for<Arguments...>());
}

template <typename Result, typename Functor, typename... Arguments>
void CallMember(const char* name, const Functor& functor, Result (Functor::*)(Arguments...) const,
                const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  Typed<Result, Arguments...>::call(name, functor, args, count, result, std::index_sequence_for<Arguments...>());
}

template <typename Functor>
void Call(const char* name, const Functor& functor, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  CallMember(name, functor, &Functor::operator(), args, count, result);
}

}  // namespace detail
}  // namespace slim
}  // namespace ffi
}  // namespace tvm

#define TVM_FFI_DLL_EXPORT_TYPED_FUNC(ExportName, Function)                                          \
  extern "C" TVM_FFI_DLL_EXPORT int __tvm_ffi_##ExportName(void*, const TVMFFIAny* args, int32_t count, \
                                                           TVMFFIAny* result) {                      \
    try {                                                                                            \
      ::tvm::ffi::detail::Call(#ExportName, Function, args, count, result);                          \
      return 0;                                                                                      \
    } catch (const ::tvm::ffi::Error& error) {                                                       \
      TVMFFIErrorSetRaisedFromCStr(error.kind_text(), error.what());                                 \
    } catch (const std::exception& error) {                                                          \
      TVMFFIErrorSetRaisedFromCStr("InternalError", error.what());                                   \
    }                                                                                                \
    return -1;                                                                                       \
  }                                                                                                  \
  static_assert(true, "")

#endif  // TVM_FFI_FUNCTION_H_
