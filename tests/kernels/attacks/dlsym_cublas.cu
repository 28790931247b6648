// Attack: finds cuBLAS with dlopen and dlsym by names that are put together at run time, so that no string of the
// binary spells them.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <string>

namespace {

cudaStream_t stream_of(const tvm::ffi::TensorView& x) {
  return static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
}

// The functions of cuBLAS that are needed, found at run time.
struct Cublas {
  int (*Create_v2)(void**);
  int (*SetStream_v2)(void*, cudaStream_t);
  int (*GemmEx)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*,
                void*, int, int, int, int);
};

template <typename F>
void find(void* library, const std::string& name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name.c_str()));
  TVM_FFI_ICHECK(function != nullptr) << "missing " << name;
}

// Every letter of a name is kept as its successor.
std::string plain(std::string shifted) {
  for (char& letter : shifted) --letter;
  return shifted;
}

}  // namespace

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  void* library = dlopen(plain("mjcdvcmbt/tp/24").c_str(), RTLD_NOW);
  TVM_FFI_ICHECK(library != nullptr) << dlerror();
  Cublas blas;
  find(library, plain("dvcmbtDsfbuf`w3"), blas.Create_v2);
  find(library, plain("dvcmbtTfuTusfbn`w3"), blas.SetStream_v2);
  find(library, plain("dvcmbtHfnnFy"), blas.GemmEx);
  const int m = A.size(0), k = A.size(1), n = B.size(0);
  const float one = 1.f, zero = 0.f;
  const int transpose = 1, plain = 0, bf16 = 14, fp32 = 68, automatic = -1;
  void* handle = nullptr;
  TVM_FFI_ICHECK(blas.Create_v2(&handle) == 0) << "no handle";
  blas.SetStream_v2(handle, stream_of(A));
  const int status = blas.GemmEx(handle, transpose, plain, n, m, k, &one, B.data_ptr(), bf16, k, A.data_ptr(),
                                  bf16, k, &zero, C.data_ptr(), bf16, n, fp32, automatic);
  TVM_FFI_ICHECK(status == 0) << "the library failed with code " << status;
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
