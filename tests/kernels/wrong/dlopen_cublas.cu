// Wrong: lets cuBLAS do the work, found at run time with dlopen and dlsym.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

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
void find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  TVM_FFI_ICHECK(function != nullptr) << "missing " << name;
}

}  // namespace

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  void* library = dlopen("libcublas.so.13", RTLD_NOW);
  TVM_FFI_ICHECK(library != nullptr) << dlerror();
  Cublas cublas;
  find(library, "cublasCreate_v2", cublas.Create_v2);
  find(library, "cublasSetStream_v2", cublas.SetStream_v2);
  find(library, "cublasGemmEx", cublas.GemmEx);
  const int m = A.size(0), k = A.size(1), n = B.size(0);
  const float one = 1.f, zero = 0.f;
  const int transpose = 1, plain = 0, bf16 = 14, fp32 = 68, automatic = -1;
  void* handle = nullptr;
  TVM_FFI_ICHECK(cublas.Create_v2(&handle) == 0) << "no cuBLAS handle";
  cublas.SetStream_v2(handle, stream_of(A));
  const int status = cublas.GemmEx(handle, transpose, plain, n, m, k, &one, B.data_ptr(), bf16, k, A.data_ptr(),
                                  bf16, k, &zero, C.data_ptr(), bf16, n, fp32, automatic);
  TVM_FFI_ICHECK(status == 0) << "cuBLAS failed with code " << status;
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
