// C[M,N] = A[M,K] * B[N,K]^T, bf16 in and out, fp32 accumulation: wgmma does the work on what ordinary loads put into
// shared memory; TMA copies the same slices of A beside it, where nobody reads them. Correct, but its TMA is decoration.
#include <cuda.h>
#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <cstdint>

namespace {

constexpr int kTile = 128, kSlice = 64, kThreads = 256;  // two warpgroups, 64 rows each
constexpr int kBytes = kTile * kSlice * 2;  // of a slice of A or B
constexpr int kAlign = 1024;  // the SW128 pattern follows the absolute address with this period
constexpr int kSharedBytes = 3 * kBytes + kAlign;  // A, B, and what nobody reads

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n\t.reg .pred done;\n"
      "again:\n\tmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
      "@!done bra again;\n\t}" ::"r"(barrier), "r"(parity)
      : "memory");
}

__device__ __forceinline__ void tma_load(uint32_t dst, const CUtensorMap* map, uint32_t barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
      ::"r"(dst), "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}

// Shared-memory operand, K-major, SW128: 8-row groups lie 1024 bytes apart (PTX ISA, wgmma matrix descriptor).
__device__ __forceinline__ uint64_t operand(uint32_t address) {
  return (uint64_t)((address & 0x3FFFF) >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

#define ACC8(i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])

// d (64 x 128, fp32) += a (64 x 16) * b (128 x 16)^T.
__device__ __forceinline__ void wgmma(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, 1, 1, 1, 0, 0;"
      : ACC8(0), ACC8(8), ACC8(16), ACC8(24), ACC8(32), ACC8(40), ACC8(48), ACC8(56)
      : "l"(a), "l"(b));
}

// 128 rows x 64 columns of a row-major matrix, swizzled by hand as SW128 does; rows beyond the end are zeros.
__device__ __forceinline__ void copy(uint32_t tile, const uint4* from, int first, int rows, int chunks) {
  for (int i = threadIdx.x; i < kTile * 8; i += kThreads) {
    const int row = i / 8, chunk = i % 8;
    const uint4 v = first + row < rows ? from[(int64_t)(first + row) * chunks + chunk] : uint4{0, 0, 0, 0};
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(tile + row * 128 + (chunk ^ row % 8) * 16), "r"(v.x),
                 "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
  }
}

__device__ __forceinline__ void multiply(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int step = 0; step < kSlice / 16; ++step) wgmma(d, a + step * 2, b + step * 2);
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

__device__ __forceinline__ void store(const float (&d)[64], uint32_t* c, int rows, int columns) {
  const int row = blockIdx.x * kTile + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  const int column = blockIdx.y * kTile + threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int y = row + i % 2 * 8, x = column + i / 2 * 8;
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(d[2 * i + 1]), "f"(d[2 * i]));
    if (y < rows && x < columns) c[((int64_t)y * columns + x) / 2] = pair;
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    gemm(const __grid_constant__ CUtensorMap map, const uint4* a, const uint4* b, uint32_t* c, int rows, int columns,
         int depth) {
  extern __shared__ __align__(kAlign) uint8_t raw[];
  __shared__ uint64_t storage;
  const uint32_t tile_a = ((uint32_t)__cvta_generic_to_shared(raw) + kAlign - 1) & ~(uint32_t)(kAlign - 1);
  const uint32_t tile_b = tile_a + kBytes, unread = tile_b + kBytes;
  const uint32_t barrier = (uint32_t)__cvta_generic_to_shared(&storage);
  if (threadIdx.x == 0) {
    barrier_init(barrier, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  float d[64] = {};
  for (int k = 0; k < depth / kSlice; ++k) {
    if (threadIdx.x == 0) {
      barrier_expect(barrier, kBytes);
      tma_load(unread, &map, barrier, k * kSlice, blockIdx.x * kTile);
    }
    copy(tile_a, a + k * 8, blockIdx.x * kTile, rows, depth / 8);
    copy(tile_b, b + k * 8, blockIdx.y * kTile, columns, depth / 8);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    barrier_wait(barrier, k & 1);
    __syncthreads();
    multiply(d, operand(tile_a + threadIdx.x / 128 * 64 * kSlice * 2), operand(tile_b));
    __syncthreads();
  }
  store(d, c, rows, columns);
}

// A row-major bf16 matrix, read in SW128 boxes of 64 columns x 128 rows.
static CUtensorMap tensor_map(const tvm::ffi::TensorView& tensor) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
  TVM_FFI_ICHECK(entry != nullptr) << "the driver cannot encode tensor maps";
  CUtensorMap map;
  const cuuint64_t dims[] = {(cuuint64_t)tensor.size(1), (cuuint64_t)tensor.size(0)}, strides[] = {dims[0] * 2};
  const cuuint32_t box[] = {kSlice, kTile}, steps[] = {1, 1};
  const CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, tensor.data_ptr(), dims, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TVM_FFI_ICHECK(result == CUDA_SUCCESS) << "cuTensorMapEncodeTiled failed with code " << static_cast<int>(result);
  return map;
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const int m = A.size(0), k = A.size(1), n = B.size(0);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(A.device().device_type, A.device().device_id));
  cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  gemm<<<dim3((m + kTile - 1) / kTile, (n + kTile - 1) / kTile), kThreads, kSharedBytes, stream>>>(
      tensor_map(A), static_cast<const uint4*>(A.data_ptr()), static_cast<const uint4*>(B.data_ptr()),
      static_cast<uint32_t*>(C.data_ptr()), m, n, k);
  TVM_FFI_ICHECK(cudaGetLastError() == cudaSuccess) << "launch failed";
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
