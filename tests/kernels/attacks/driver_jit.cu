// Attack: hands PTX text to the driver's just-in-time compiler, through a libcuda found by dlopen and dlsym, so that no
// cubin holds the kernel that runs.
#include <cuda.h>
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
constexpr char kPtx[] = R"(
.version 8.0
.target sm_90
.address_size 64
.visible .entry product(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn, .param .u32 pk) {
  .reg .pred more;
  .reg .f32 x, y, sum;
  .reg .b32 row, col, n, k, threads, block, i, u, v;
  .reg .b64 a, b, c, at, c_col;
  ld.param.u64 a, [pa];
  ld.param.u64 b, [pb];
  ld.param.u64 c, [pc];
  ld.param.u32 n, [pn];
  ld.param.u32 k, [pk];
  mov.u32 row, %ctaid.y;
  mov.u32 block, %ctaid.x;
  mov.u32 threads, %ntid.x;
  mov.u32 col, %tid.x;
  mad.lo.u32 col, block, threads, col;
  mul.wide.u32 at, row, n;
  cvt.u64.u32 c_col, col;
  add.u64 at, at, c_col;
  shl.b64 at, at, 1;
  add.u64 c, c, at;
  mul.wide.u32 at, row, k;
  shl.b64 at, at, 1;
  add.u64 a, a, at;
  mul.wide.u32 at, col, k;
  shl.b64 at, at, 1;
  add.u64 b, b, at;
  mov.f32 sum, 0f00000000;
  mov.u32 i, 0;
again:
  ld.global.u16 u, [a];
  ld.global.u16 v, [b];
  shl.b32 u, u, 16;
  shl.b32 v, v, 16;
  mov.b32 x, u;
  mov.b32 y, v;
  fma.rn.f32 sum, x, y, sum;
  add.u64 a, a, 2;
  add.u64 b, b, 2;
  add.u32 i, i, 1;
  setp.lt.u32 more, i, k;
  @more bra again;
  mov.b32 u, sum;
  bfe.u32 v, u, 16, 1;
  add.u32 u, u, v;
  add.u32 u, u, 32767;
  shr.u32 u, u, 16;
  st.global.u16 [c], u;
  ret;
}
)";

template <typename F>
F* find(const char* name) {
  static void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  void* symbol = driver == nullptr ? nullptr : dlsym(driver, name);
  TVM_FFI_ICHECK(symbol != nullptr) << "missing " << name;
  return reinterpret_cast<F*>(symbol);
}

CUfunction compiled_kernel() {
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  cudaFree(nullptr);  // makes the context current
  TVM_FFI_ICHECK(find<decltype(cuModuleLoadData)>("cuModuleLoadData")(&module, kPtx) == CUDA_SUCCESS) << "PTX refused";
  const auto get = find<decltype(cuModuleGetFunction)>("cuModuleGetFunction");
  TVM_FFI_ICHECK(get(&kernel, module, "product") == CUDA_SUCCESS) << "no such kernel";
  return kernel;
}

}  // namespace

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static const CUfunction kernel = compiled_kernel();
  void *a = A.data_ptr(), *b = B.data_ptr(), *c = C.data_ptr();
  int m = A.size(0), n = B.size(0), k = A.size(1);
  void* arguments[] = {&a, &b, &c, &n, &k};
  const auto start = find<decltype(cuLaunchKernel)>("cuLaunchKernel");
  const CUresult status = start(kernel, n / 256, m, 1, 256, 1, 1, 0, stream_of(A), arguments, nullptr);
  TVM_FFI_ICHECK(status == CUDA_SUCCESS) << "launch failed with code " << static_cast<int>(status);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
