// Known answers for the instruments: a kernel that executes a known number of wgmma instructions, and one of known duration.
// Not a kernel to learn from: its results mean nothing.
#include <cstdint>
#include <cuda_bf16.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

namespace {

constexpr int kBlocks = 4, kThreads = 128, kLoops = 100;  // 4 CTAs * 4 warps * 100 = 1600 warp-level HGMMA
constexpr long long kSpinNanoseconds = 1000000;

__device__ uint64_t descriptor(const void* shared) {
  // Any valid descriptor does (no swizzle; PTX ISA, wgmma matrix descriptor): only the count matters.
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  return static_cast<uint64_t>((address & 0x3FFFF) >> 4) | (uint64_t{8} << 16) | (uint64_t{16} << 32);
}

__global__ void known_count(float* out, int loops) {
  __shared__ __align__(1024) __nv_bfloat16 tile[2048];
  for (int i = threadIdx.x; i < 2048; i += blockDim.x) tile[i] = __float2bfloat16(0.01f);
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  float d[8] = {};
  const uint64_t desc = descriptor(tile);
  for (int i = 0; i < loops; ++i) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7}, %8, %8, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
        : "l"(desc));
    asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = d[0] + d[1] + d[2] + d[3] + d[4] + d[5] + d[6] + d[7];
}

__device__ long long nanoseconds() {
  long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__global__ void known_duration(long long spin) {
  const long long start = nanoseconds();
  while (nanoseconds() - start < spin) {
  }
}

void run(tvm::ffi::TensorView out) {
  const DLDevice device = out.device();
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  known_count<<<kBlocks, kThreads, 0, stream>>>(static_cast<float*>(out.data_ptr()), kLoops);
  known_duration<<<1, 1, 0, stream>>>(kSpinNanoseconds);
  const cudaError_t error = cudaGetLastError();
  TVM_FFI_ICHECK(error == cudaSuccess) << cudaGetErrorString(error);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
