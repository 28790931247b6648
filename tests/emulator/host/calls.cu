// Host code of many kinds, one function each; the tests name them. Nothing here ever runs on a device.
#include <cuda.h>
#include <cuda_runtime.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <vector>

using tvm::ffi::TensorView;

struct Pair {
  float* a;
  int n;
};

__device__ float table[64];

__global__ void scale(float* x, Pair pair, char c, double d) { x[threadIdx.x] *= pair.n + c + d + table[threadIdx.x]; }
__global__ void __launch_bounds__(128) small(float* x) {
  extern __shared__ float shared[];
  __shared__ float fixed[100];
  fixed[threadIdx.x % 100] = x[0];
  shared[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = shared[127 - threadIdx.x] + fixed[threadIdx.x % 50];
}
__global__ void __cluster_dims__(2, 1, 1) paired(float* x) { x[blockIdx.x] = 1; }

__global__ void ahead(float* y) {
  asm volatile("griddepcontrol.launch_dependents;");
  y[threadIdx.x] = threadIdx.x + 1;
}
__global__ void behind(float* y, float* z, int waits) {
  if (waits) asm volatile("griddepcontrol.wait;" ::: "memory");
  z[threadIdx.x] = 10 * y[threadIdx.x];
}

#define CALL(name) static void name(TensorView x)
#define EXPORT(name) TVM_FFI_DLL_EXPORT_TYPED_FUNC(name, name)
#define ERROR(condition) TVM_FFI_ICHECK(condition) << #condition

static float* data(TensorView x) { return static_cast<float*>(x.data_ptr()); }

CALL(launches) {
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  scale<<<dim3(3, 2), 64, 0, stream>>>(data(x), Pair{data(x) + 5, 7}, 'c', 2.5);
  ERROR(cudaGetLastError() == cudaSuccess);
}
EXPORT(launches);

static cudaError_t clustered(const void* kernel, dim3 grid, dim3 block, int size, float* x) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {static_cast<unsigned>(size), 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  config.attrs = attributes;
  config.numAttrs = 2;
  void* arguments[] = {&x};
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

CALL(clusters) {
  auto kernel = reinterpret_cast<const void*>(small);
  ERROR(clustered(kernel, 8, 128, 4, data(x)) == cudaSuccess);
  ERROR(clustered(kernel, 32, 128, 16, data(x)) == cudaErrorInvalidClusterSize);
  cudaFuncSetAttribute(small, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  ERROR(clustered(kernel, 32, 128, 16, data(x)) == cudaSuccess);
  ERROR(clustered(kernel, 9, 128, 2, data(x)) != cudaSuccess);
  ERROR(clustered(reinterpret_cast<const void*>(paired), 8, 128, 4, data(x)) == cudaErrorInvalidClusterSize);
  cudaGetLastError();
  paired<<<8, 32>>>(data(x));
  ERROR(cudaGetLastError() == cudaSuccess);
}
EXPORT(clusters);

CALL(dependent) {
  float *y[2], *z[2];
  for (int waits = 0; waits < 2; waits++) {
    ERROR(cudaMalloc(&y[waits], 256) == cudaSuccess && cudaMalloc(&z[waits], 256) == cudaSuccess);
    ahead<<<1, 64>>>(y[waits]);
    cudaLaunchConfig_t config{};
    config.gridDim = 1;
    config.blockDim = 64;
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    ERROR(cudaLaunchKernelEx(&config, behind, y[waits], z[waits], waits) == cudaSuccess);
  }
}
EXPORT(dependent);

CALL(shared_memory) {
  cudaFuncAttributes attributes;
  ERROR(cudaFuncGetAttributes(&attributes, small) == cudaSuccess);
  ERROR(attributes.maxThreadsPerBlock == 128 && attributes.sharedSizeBytes >= 400);
  small<<<1, 128, 60000>>>(data(x));
  ERROR(cudaPeekAtLastError() == cudaErrorInvalidValue);
  ERROR(cudaGetLastError() == cudaErrorInvalidValue);
  ERROR(cudaGetLastError() == cudaSuccess);
  ERROR(cudaFuncSetAttribute(small, cudaFuncAttributeMaxDynamicSharedMemorySize, 232448) == cudaErrorInvalidValue);
  cudaGetLastError();
  ERROR(cudaFuncSetAttribute(small, cudaFuncAttributeMaxDynamicSharedMemorySize, 60000) == cudaSuccess);
  small<<<1, 128, 60000>>>(data(x));
  ERROR(cudaGetLastError() == cudaSuccess);
  int blocks;
  ERROR(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, small, 128, 60000) == cudaSuccess && blocks == 3);
}
EXPORT(shared_memory);

CALL(bad_shapes) {
  small<<<0, 128>>>(data(x));
  ERROR(cudaGetLastError() == cudaErrorInvalidConfiguration);
  small<<<1, 2048>>>(data(x));
  ERROR(cudaGetLastError() == cudaErrorInvalidConfiguration);
  small<<<1, 256>>>(data(x));
  ERROR(cudaGetLastError() != cudaSuccess);
  small<<<1, 128, 0, reinterpret_cast<cudaStream_t>(0x1234)>>>(data(x));
  ERROR(cudaGetLastError() == cudaErrorInvalidResourceHandle);
  void* arguments[] = {&x};
  ERROR(cudaLaunchKernel(reinterpret_cast<void*>(0x99), 1, 1, arguments, 0, 0) == cudaErrorInvalidDeviceFunction);
}
EXPORT(bad_shapes);

CALL(memory) {
  float *first, *second, values[4] = {1, 2, 3, 4};
  cudaStream_t stream;
  ERROR(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  ERROR(cudaMalloc(&first, 4096) == cudaSuccess && cudaMallocAsync(&second, 256, stream) == cudaSuccess);
  ERROR(cudaMemsetAsync(first, 0xAB, 4096, stream) == cudaSuccess);
  ERROR(cudaMemcpyAsync(second, values, 16, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  ERROR(cudaMemcpy(first, data(x), 64, cudaMemcpyDefault) == cudaSuccess);
  ERROR(cudaMemcpyToSymbol(table, values, 16, 32) == cudaSuccess);
  float* pointers[2] = {data(x) + 1, second + 2};
  ERROR(cudaMemcpy(first, pointers, 16, cudaMemcpyDefault) == cudaSuccess);
  ERROR(cudaMemcpy(first + 1020, values, 32, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  ERROR(cudaFree(values) == cudaErrorInvalidValue);
  ERROR(cudaFreeAsync(second, stream) == cudaSuccess && cudaFree(first) == cudaSuccess && cudaFree(nullptr) == 0);
  ERROR(cudaMalloc(&first, size_t{1} << 50) == cudaErrorMemoryAllocation);
  cudaPointerAttributes attributes;
  ERROR(cudaPointerGetAttributes(&attributes, data(x)) == cudaSuccess && attributes.type == cudaMemoryTypeDevice);
  ERROR(cudaPointerGetAttributes(&attributes, values) == cudaSuccess && attributes.type != cudaMemoryTypeDevice);
}
EXPORT(memory);

CALL(order) {
  cudaStream_t stream;
  cudaEvent_t event;
  ERROR(cudaStreamCreate(&stream) == cudaSuccess && cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == 0);
  ERROR(cudaEventRecord(event, nullptr) == cudaSuccess && cudaStreamWaitEvent(stream, event, 0) == cudaSuccess);
  paired<<<2, 32, 0, stream>>>(data(x));
  ERROR(cudaStreamSynchronize(stream) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess);
  ERROR(cudaEventDestroy(event) == cudaSuccess && cudaStreamDestroy(stream) == cudaSuccess);
  ERROR(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
}
EXPORT(order);

CALL(queries) {
  int value, major;
  ERROR(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0) == cudaSuccess);
  cudaDeviceProp all;
  ERROR(cudaGetDeviceProperties(&all, 0) == cudaSuccess && all.multiProcessorCount == value);
  ERROR(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess && major == all.major);
  ERROR(all.sharedMemPerBlockOptin == 232448 && all.warpSize == 32 && all.maxThreadsPerBlock == 1024);
  ERROR(cudaGetDeviceProperties(&all, 1) == cudaErrorInvalidDevice);
  ERROR(std::string(cudaGetErrorString(cudaErrorInvalidValue)) == "cudaErrorInvalidValue");
  paired<<<2 * value, 32>>>(data(x));
}
EXPORT(queries);

template <class Function>
static Function* entry(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status;
  cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &status);
  return reinterpret_cast<Function*>(found);
}

CALL(tensor_maps) {
  auto tiled = entry<decltype(cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  auto im2col = entry<decltype(cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
  ERROR(tiled != nullptr && im2col != nullptr && entry<void()>("cuNoSuchThing") == nullptr);
  struct alignas(64) Maps {
    CUtensorMap first, second;
  } maps;
  cuuint64_t sizes[4] = {64, 16, 8, 2}, strides[3] = {256, 4096, 32768}, bad[3] = {24, 4096, 32768};
  cuuint32_t box[2] = {32, 8}, steps[4] = {1, 1, 1, 1};
  auto encode = [&](CUtensorMap* map, cuuint64_t* pitch) {
    return tiled(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, data(x), sizes, pitch, box, steps,
                 CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  ERROR(encode(&maps.first, bad) == CUDA_ERROR_INVALID_VALUE);
  ERROR(encode(&maps.first, strides) == CUDA_SUCCESS);
  int lower[2] = {-1, -2}, upper[2] = {0, 1};
  ERROR(im2col(&maps.second, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, data(x), sizes, strides, lower, upper, 32, 100, steps,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
  void* place;
  ERROR(cudaMalloc(&place, sizeof maps) == 0 && cudaMemcpy(place, &maps, sizeof maps, cudaMemcpyHostToDevice) == 0);
}
EXPORT(tensor_maps);

CALL(wide_map) {  // for devices from sm_100 on
  auto wide = entry<decltype(cuTensorMapEncodeIm2colWide)>("cuTensorMapEncodeIm2colWide");
  ERROR(wide != nullptr);
  alignas(64) CUtensorMap map;
  cuuint64_t sizes[4] = {64, 16, 8, 2}, strides[3] = {256, 4096, 32768};
  cuuint32_t steps[4] = {1, 1, 1, 1};
  ERROR(wide(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, data(x), sizes, strides, -3, 2, 32, 0, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
  void* place;
  ERROR(cudaMalloc(&place, sizeof map) == 0 && cudaMemcpy(place, &map, sizeof map, cudaMemcpyHostToDevice) == 0);
}
EXPORT(wide_map);

CALL(driver_launch) {
  cudaFunction_t function;
  ERROR(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(paired)) == cudaSuccess);
  float* pointer = data(x);
  void* arguments[] = {&pointer};
  auto launch = entry<decltype(cuLaunchKernel)>("cuLaunchKernel");
  ERROR(launch(function, 4, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr) == CUDA_SUCCESS);
}
EXPORT(driver_launch);

CALL(graph) {
  cudaGraph_t graph;
  ERROR(cudaGraphCreate(&graph, 0) == cudaErrorNotSupported);
}
EXPORT(graph);

CALL(reads_back) {
  float value = -1;
  ERROR(cudaMemcpy(&value, data(x) + 3, 4, cudaMemcpyDeviceToHost) == cudaSuccess);
  scale<<<1, 1>>>(data(x), Pair{nullptr, static_cast<int>(value)}, 0, 0);
}
EXPORT(reads_back);

CALL(calls_back) {
  cudaLaunchHostFunc(nullptr, [](void* flag) { *static_cast<int*>(flag) = 1; }, new int(0));
}
EXPORT(calls_back);

CALL(uses_threads) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int j = 0; j < 50; ++j) paired<<<2, 32>>>(data(x));
    });
  for (auto& thread : threads) thread.join();
}
EXPORT(uses_threads);

// ---- hostile ----

CALL(touches_device_memory) { *data(x) = 1; }
EXPORT(touches_device_memory);
CALL(touches_allocation) {
  float* pointer;
  cudaMalloc(&pointer, 4);
  *pointer = 1;
}
EXPORT(touches_allocation);
CALL(throws) { TVM_FFI_THROW(ValueError) << "no such shape"; }
EXPORT(throws);
CALL(loops) {
  for (volatile int i = 0;; ++i) {
  }
}
EXPORT(loops);
CALL(sleeps) { pause(), sleep(1000); }
EXPORT(sleeps);
CALL(aborts) { abort(); }
EXPORT(aborts);
CALL(exits) { exit(0); }
EXPORT(exits);
CALL(leaves) { _exit(7); }
EXPORT(leaves);
CALL(allocates) {
  for (;;) memset(new char[1 << 26], 1, 1 << 26);
}
EXPORT(allocates);
static int deeper(volatile int* at) {
  volatile int here = *at + 1;
  return deeper(&here) + here;
}
CALL(recurses) {
  volatile int zero = 0;
  deeper(&zero);
}
EXPORT(recurses);
CALL(escapes) {
  ERROR(fork() < 0);
  ERROR(socket(AF_INET, SOCK_STREAM, 0) < 0);
  ERROR(open("/tmp/ptxbench-was-here", O_WRONLY | O_CREAT, 0600) < 0);
  ERROR(creat("/dev/shm/ptxbench-was-here", 0600) < 0);
  ERROR(unlink("/tmp/ptxbench-victim") < 0);
  ERROR(kill(getppid(), 0) < 0 && kill(-1, 0) < 0);
  char* words[] = {const_cast<char*>("/bin/true"), nullptr};
  ERROR(execv(words[0], words) < 0);
}
EXPORT(escapes);
CALL(reads_files) { ERROR(open("/etc/passwd", O_RDONLY) < 0); }
EXPORT(reads_files);
CALL(chatters) {
  for (int i = 0; i < 100000; ++i) puts("a line of text that nobody wants to read");
}
EXPORT(chatters);
CALL(floods) {
  for (;;) paired<<<2, 32>>>(data(x));
}
EXPORT(floods);
CALL(copies_without_end) {
  static char big[1 << 25];
  float* pointer;
  cudaMalloc(&pointer, sizeof big);
  for (;;) cudaMemcpy(pointer, big, sizeof big, cudaMemcpyHostToDevice);
}
EXPORT(copies_without_end);
CALL(talks_nonsense) {
  char noise[4096];
  memset(noise, 0xA5, sizeof noise);
  for (int descriptor = 3; descriptor < 64; ++descriptor) (void)!write(descriptor, noise, sizeof noise);
  sleep(1);
}
EXPORT(talks_nonsense);
CALL(forges_words) {
  unsigned head[4] = {6, 1, 0, 0};  // a launch with one word in place of thirteen
  unsigned long long word = 1;
  for (int descriptor = 3; descriptor < 64; ++descriptor)
    if (write(descriptor, head, sizeof head) > 0) (void)!write(descriptor, &word, sizeof word);
  sleep(1);
}
EXPORT(forges_words);
CALL(closes_everything) {
  for (int descriptor = 0; descriptor < 64; ++descriptor) close(descriptor);
  sleep(1000);
}
EXPORT(closes_everything);
