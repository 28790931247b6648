// Attack: compiles its kernel at run time with NVRTC, found by dlopen, so that the binary under inspection holds no
// kernel at all.
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
constexpr char kSource[] = R"(
    extern "C" __global__ void product(const unsigned short* a, const unsigned short* b, unsigned short* c, int n,
                                       int k) {
      const int row = blockIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
      float sum = 0;
      for (int i = 0; i < k; ++i) {
        const float x = __uint_as_float(a[(size_t)row * k + i] << 16);
        sum += x * __uint_as_float(b[(size_t)col * k + i] << 16);
      }
      const unsigned bits = __float_as_uint(sum);
      c[(size_t)row * n + col] = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    }
)";

void check(cudaError_t error) { TVM_FFI_ICHECK(error == cudaSuccess) << cudaGetErrorString(error); }

template <typename F>
F find(void* library, const char* name) {
  void* symbol = dlsym(library, name);
  TVM_FFI_ICHECK(symbol != nullptr) << "missing " << name;
  return reinterpret_cast<F>(symbol);
}

std::string compiled() {
  void* nvrtc = dlopen("libnvrtc.so.13", RTLD_NOW);
  TVM_FFI_ICHECK(nvrtc != nullptr) << dlerror();
  void* program = nullptr;
  const char* options[] = {"--gpu-architecture=sm_90a"};
  size_t size = 0;
  using Create = int (*)(void**, const char*, const char*, int, const char* const*, const char* const*);
  find<Create>(nvrtc, "nvrtcCreateProgram")(&program, kSource, "product.cu", 0, nullptr, nullptr);
  const int status = find<int (*)(void*, int, const char* const*)>(nvrtc, "nvrtcCompileProgram")(program, 1, options);
  TVM_FFI_ICHECK(status == 0) << "NVRTC failed with code " << status;
  find<int (*)(void*, size_t*)>(nvrtc, "nvrtcGetCUBINSize")(program, &size);
  std::string cubin(size, 0);
  find<int (*)(void*, char*)>(nvrtc, "nvrtcGetCUBIN")(program, cubin.data());
  return cubin;
}

cudaKernel_t built_kernel() {
  static const std::string cubin = compiled();
  cudaLibrary_t library = nullptr;
  cudaKernel_t kernel = nullptr;
  check(cudaLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  check(cudaLibraryGetKernel(&kernel, library, "product"));
  return kernel;
}

}  // namespace

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static const cudaKernel_t kernel = built_kernel();
  void *a = A.data_ptr(), *b = B.data_ptr(), *c = C.data_ptr();
  int m = A.size(0), n = B.size(0), k = A.size(1);
  void* arguments[] = {&a, &b, &c, &n, &k};
  check(cudaLaunchKernel(kernel, dim3(n / 256, m), dim3(256), arguments, 0, stream_of(A)));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
