// Calls that the runtime refuses, and what it says: each function raises an error whose text lists them, name by name.
#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <cstdio>
#include <sstream>

__global__ void plain(float* x) {
  if (x) x[0] = 1;
}
__global__ void __launch_bounds__(128) narrow(float* x) {
  if (x) x[0] = 1;
}
__global__ void __cluster_dims__(2, 1, 1) paired(float* x) {
  if (x) x[0] = 1;
}
__device__ float table[64];

static std::ostringstream* told;

static void tell(const char* name, int code) {
  *told << name << '=' << code << ' ';
  cudaGetLastError();
}

template <class Kernel>
static void launch(const char* name, Kernel kernel, dim3 grid, dim3 block, int shared = 0) {
  kernel<<<grid, block, shared>>>(nullptr);
  tell(name, cudaGetLastError());
}

template <class Kernel>
static void clustered(const char* name, Kernel kernel, dim3 grid, int size) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = 32;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(size), 1, 1};
  config.attrs = &attribute;
  config.numAttrs = 1;
  float* nothing = nullptr;
  void* arguments[] = {&nothing};
  tell(name, cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), arguments));
}

static void launches() {
  launch("zero grid", plain, 0, 128);
  launch("zero block", plain, 1, 0);
  launch("2048 threads", plain, 1, 2048);
  launch("block z 65", plain, 1, dim3(1, 1, 65));
  launch("grid y 65536", plain, dim3(1, 65536), 32);
  launch("more threads than bounds", narrow, 1, 256);
  launch("dynamic 48K", plain, 1, 32, 48 << 10);
  launch("dynamic 48K+1", plain, 1, 32, (48 << 10) + 1);
  tell("attribute 227K", cudaFuncSetAttribute(plain, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 << 10));
  tell("attribute 227K+1", cudaFuncSetAttribute(plain, cudaFuncAttributeMaxDynamicSharedMemorySize, (227 << 10) + 1));
  launch("dynamic 227K", plain, 1, 32, 227 << 10);
  launch("dynamic 228K", plain, 1, 32, 228 << 10);
}

static void clusters() {
  launch("odd grid of pairs", paired, 3, 32);
  launch("grid of pairs", paired, 4, 32);
  clustered("cluster 8", plain, 8, 8);
  clustered("cluster 16", plain, 16, 16);
  tell("attribute non-portable", cudaFuncSetAttribute(plain, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  clustered("cluster 16 allowed", plain, 16, 16);
  clustered("cluster 32 allowed", plain, 32, 32);
  clustered("cluster 3", plain, 6, 3);
  clustered("cluster not dividing", plain, 9, 2);
  clustered("cluster 4 of pairs", paired, 8, 4);
}

static void no_kernel() {
  float* nothing = nullptr;
  void* arguments[] = {&nothing};
  tell("no kernel", cudaLaunchKernel(reinterpret_cast<void*>(0x99), 1, 1, arguments, 0, nullptr));
}

static void memory() {
  float values[4] = {1, 2, 3, 4}, *first = nullptr, *x = nullptr;
  tell("malloc", cudaMalloc(&first, 4096));
  tell("malloc 0", cudaMalloc(&x, 0));
  tell("copy", cudaMemcpy(first, values, 16, cudaMemcpyHostToDevice));
  tell("copy to symbol", cudaMemcpyToSymbol(table, values, 16, 32));
  tell("copy beyond symbol", cudaMemcpyToSymbol(table, values, 16, 252));
  tell("free", cudaFree(first));
  tell("free nothing", cudaFree(nullptr));
  tell("malloc 2^50", cudaMalloc(&first, size_t{1} << 50));
}

static void bad_free() {
  float values[4], *first = nullptr;
  cudaMalloc(&first, 4096);
  tell("free of host memory", cudaFree(values));
  tell("free", cudaFree(first));
  tell("free again", cudaFree(first));
}

static void bad_kind() {
  float values[4] = {1, 2, 3, 4}, *first = nullptr;
  cudaMalloc(&first, 4096);
  tell("copy kind", cudaMemcpy(first, values, 16, static_cast<cudaMemcpyKind>(9)));
}

static void queries() {
  int value = 0;
  cudaDeviceProp all;
  cudaFuncAttributes attributes;
  tell("device 0", cudaGetDeviceProperties(&all, 0));
  tell("device 99", cudaGetDeviceProperties(&all, 99));
  tell("set device 99", cudaSetDevice(99));
  tell("function", cudaFuncGetAttributes(&attributes, narrow));
  tell("bounds", attributes.maxThreadsPerBlock);
  tell("occupancy", cudaOccupancyMaxActiveBlocksPerMultiprocessor(&value, plain, 1024, 0));
  tell("blocks", value);
  tell("occupancy of 4096 threads", cudaOccupancyMaxActiveBlocksPerMultiprocessor(&value, plain, 4096, 0));
  *told << cudaGetErrorName(cudaErrorInvalidValue);
}

static void no_function() {
  cudaFuncAttributes attributes;
  tell("no function", cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(0x99)));
}

template <void (*part)()>
static void codes(tvm::ffi::TensorView) {
  std::ostringstream text;
  told = &text;
  part();
  TVM_FFI_THROW(ValueError) << "codes: " << text.str();
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(code_launches, codes<launches>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(code_clusters, codes<clusters>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(code_no_kernel, codes<no_kernel>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(code_memory, codes<memory>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(code_bad_free, codes<bad_free>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(code_bad_kind, codes<bad_kind>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(code_queries, codes<queries>);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(code_no_function, codes<no_function>);
