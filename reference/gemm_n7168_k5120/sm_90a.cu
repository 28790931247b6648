// C[M,7168] = A[M,5120] * B[7168,5120]^T, bf16 in and out, fp32 accumulation, any M >= 1, for Hopper (sm_90a).
//
// Persistent clusters of two CTAs. One CTA computes 128 x 256 of C with two consumer warpgroups (wgmma m64n256k16) fed
// by one producer thread (TMA, SW128) through a ring of four K-slices of 64. The two CTAs of a cluster lie below each
// other along M and need the same slice of B, so each loads one half of it and multicasts that half to both. C leaves
// through stmatrix and TMA stores while the producer already loads the next tile; a warpgroup in its epilogue leaves
// the tensor cores to the other one, which the ring lets run ahead.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <cstdint>

namespace {

constexpr int kN = 7168, kK = 5120;
constexpr int kTileM = 128, kTileN = 256, kSliceK = 64;
constexpr int kCluster = 2;
constexpr int kStages = 4;
constexpr int kSlices = kK / kSliceK;
constexpr int kTilesN = kN / kTileN;
constexpr int kGroupRows = 8;  // cluster rows of C that are walked together, so that their A stays in L2
constexpr int kThreads = 384;  // producer warpgroup, then two consumer warpgroups
constexpr int kConsumerWarps = 8;

constexpr int kBytesA = kTileM * kSliceK * 2;
constexpr int kBytesB = kTileN * kSliceK * 2;
constexpr int kBytesHalfB = kBytesB / kCluster;
constexpr int kBytesStage = kBytesA + kBytesB;
constexpr int kBoxCols = 64;                   // one SW128 line of bf16
constexpr int kBytesBox = 64 * kBoxCols * 2;   // what one warpgroup stores at once: 64 rows x 64 columns
constexpr int kBoxes = 2;                      // per warpgroup, used in turn
constexpr int kOffsetC = kStages * kBytesStage;
constexpr int kOffsetBarriers = kOffsetC + 2 * kBoxes * kBytesBox;
constexpr int kAlign = 1024;  // the SW128 pattern follows the absolute address with this period
constexpr int kSharedBytes = kOffsetBarriers + 2 * kStages * 8 + kAlign;

static_assert(kN % kTileN == 0 && kK % kSliceK == 0);
static_assert(kSlices % (2 * kStages) == 0, "every tile starts at stage 0 with parity 0");
static_assert(kSharedBytes <= 232448, "opt-in shared memory of one CTA");

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ void cluster_sync() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

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

// Arrives on the barrier at the same offset in CTA `rank` of the cluster.
__device__ __forceinline__ void barrier_arrive_at(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n\t.reg .b32 remote;\n\tmapa.shared::cluster.u32 remote, %0, %1;\n\t"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n\t}" ::"r"(barrier), "r"(rank)
      : "memory");
}

__device__ __forceinline__ void tma_load(uint32_t dst, const CUtensorMap* map, uint32_t barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
      ::"r"(dst), "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}

__device__ __forceinline__ void tma_load_both(uint32_t dst, const CUtensorMap* map, uint32_t barrier, int x, int y) {
  constexpr uint16_t both = (1 << kCluster) - 1;
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(dst),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(both)
      : "memory");
}

__device__ __forceinline__ void tma_store(const CUtensorMap* map, uint32_t src, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), "r"(src),
               "r"(x), "r"(y)
               : "memory");
}

// Shared-memory operand, K-major, SW128: 8-row groups lie 1024 bytes apart (PTX ISA, wgmma matrix descriptor).
__device__ __forceinline__ uint64_t operand(uint32_t address) {
  return (uint64_t)((address & 0x3FFFF) >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

#define ACC8(i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define ACC32(i) ACC8(i), ACC8(i + 8), ACC8(i + 16), ACC8(i + 24)

// d (64 x 256, fp32) = a (64 x 16) * b (256 x 16)^T, plus the old d unless `accumulate` is 0.
__device__ __forceinline__ void wgmma(float (&d)[128], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %130, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
      "}, %128, %129, p, 1, 1, 0, 0;\n\t}"
      : ACC32(0), ACC32(32), ACC32(64), ACC32(96)
      : "l"(a), "l"(b), "r"(accumulate));
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

__device__ __forceinline__ void stmatrix(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}

struct Shared {
  uint32_t base;
  __device__ uint32_t a(int stage) const { return base + stage * kBytesStage; }
  __device__ uint32_t b(int stage) const { return a(stage) + kBytesA; }
  __device__ uint32_t c(int group, int box) const { return base + kOffsetC + (group * kBoxes + box) * kBytesBox; }
  __device__ uint32_t full(int stage) const { return base + kOffsetBarriers + stage * 8; }
  __device__ uint32_t empty(int stage) const { return full(stage) + kStages * 8; }
};

struct Tile {
  int row, col;  // first element of this CTA's part of C
};

// Walks C in groups of kGroupRows cluster rows, column by column inside a group.
__device__ __forceinline__ Tile tile_of(int index, int cluster_rows, int rank) {
  const int group = index / (kGroupRows * kTilesN);
  const int first = group * kGroupRows;
  const int rows = min(kGroupRows, cluster_rows - first);
  const int rest = index - group * kGroupRows * kTilesN;
  return {(first + rest % rows) * kCluster * kTileM + rank * kTileM, rest / rows * kTileN};
}

__device__ __forceinline__ void produce(const Shared& s, const CUtensorMap* a, const CUtensorMap* b, Tile tile,
                                        int rank) {
#pragma unroll kStages
  for (int k = 0; k < kSlices; ++k) {
    const int stage = k % kStages;
    const uint32_t parity = k / kStages & 1;
    barrier_wait(s.empty(stage), parity ^ 1);
    barrier_expect(s.full(stage), kBytesStage);
    tma_load(s.a(stage), a, s.full(stage), k * kSliceK, tile.row);
    tma_load_both(s.b(stage) + rank * kBytesHalfB, b, s.full(stage), k * kSliceK,
                  tile.col + rank * (kTileN / kCluster));
  }
}

// Every consumer warp tells both CTAs that it is done with a stage, because both fill it.
__device__ __forceinline__ void release(const Shared& s, int stage, int lane) {
  if (lane < kCluster) barrier_arrive_at(s.empty(stage), lane);
}

__device__ __forceinline__ void multiply(const Shared& s, float (&d)[128], int group, int lane) {
  const uint64_t a0 = operand(s.a(0) + group * 64 * kSliceK * 2);
  const uint64_t b0 = operand(s.b(0));
#pragma unroll kStages
  for (int k = 0; k < kSlices; ++k) {
    const int stage = k % kStages;
    barrier_wait(s.full(stage), k / kStages & 1);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSliceK / 16; ++step) {
      const int offset = (stage * kBytesStage + step * 32) >> 4;
      wgmma(d, a0 + offset, b0 + offset, k > 0 || step > 0);
    }
    wgmma_commit();
    wgmma_wait<1>();
    if (k > 0) release(s, (k - 1) % kStages, lane);
  }
  wgmma_wait<0>();
  release(s, kStages - 1, lane);
}

// Stores the warpgroup's 64 x 256 accumulators in boxes of 64 columns, two boxes in flight.
__device__ __forceinline__ void store(const Shared& s, const float (&d)[128], const CUtensorMap* c, Tile tile,
                                      int group) {
  const int thread = threadIdx.x % 128, lane = thread % 32;
  const uint32_t row = thread / 32 * 16 + lane % 16;  // the row of the 8x8 matrices whose address this lane gives
#pragma unroll
  for (int box = 0; box < kTileN / kBoxCols; ++box) {
    const uint32_t buffer = s.c(group, box % kBoxes);
    if (thread == 0) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kBoxes - 1) : "memory");
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
#pragma unroll
    for (int j = 0; j < kBoxCols / 16; ++j) {
      const float* v = d + box * (kBoxCols / 2) + j * 8;
      const uint32_t chunk = (j * 2 + lane / 16) ^ (row % 8);
      stmatrix(buffer + row * 128 + chunk * 16, pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7]));
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
    if (thread == 0) {
      tma_store(c, buffer, tile.col + box * kBoxCols, tile.row + group * 64);  // rows beyond M are clipped
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
  }
}

__device__ __forceinline__ void init_barriers(const Shared& s) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(s.full(i), 1);
      barrier_init(s.empty(i), kConsumerWarps * kCluster);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  cluster_sync();
}

__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
         const __grid_constant__ CUtensorMap map_c, int cluster_rows) {
  extern __shared__ uint8_t raw[];
  const Shared s{((uint32_t)__cvta_generic_to_shared(raw) + kAlign - 1) & ~(uint32_t)(kAlign - 1)};
  const int rank = cluster_rank(), cluster = blockIdx.x / kCluster, clusters = gridDim.x / kCluster;
  const int tiles = cluster_rows * kTilesN;
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);  // uniform registers for what depends on it
  init_barriers(s);

  if (warpgroup == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) {
      for (int t = cluster; t < tiles; t += clusters) produce(s, &map_a, &map_b, tile_of(t, cluster_rows, rank), rank);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int group = warpgroup - 1;
    float d[128];
    for (int t = cluster; t < tiles; t += clusters) {
      multiply(s, d, group, threadIdx.x % 32);
      store(s, d, &map_c, tile_of(t, cluster_rows, rank), group);
    }
    if (threadIdx.x % 128 == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
  cluster_sync();  // the peer may still multicast into this CTA or arrive on its barriers
}

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorString(error);
}

// A row-major bf16 matrix read or written in SW128 boxes of 64 columns x box_rows.
CUtensorMap tensor_map(void* data, int64_t rows, int64_t cols, uint32_t box_rows) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found),
        "cuTensorMapEncodeTiled");
  TVM_FFI_ICHECK(entry != nullptr && found == cudaDriverEntryPointSuccess) << "the driver cannot encode tensor maps";
  CUtensorMap map;
  const cuuint64_t dims[] = {(cuuint64_t)cols, (cuuint64_t)rows}, strides[] = {(cuuint64_t)cols * 2};
  const cuuint32_t box[] = {kBoxCols, box_rows}, steps[] = {1, 1};
  const CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, data, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TVM_FFI_ICHECK(result == CUDA_SUCCESS) << "cuTensorMapEncodeTiled failed with code " << static_cast<int>(result);
  return map;
}

}  // namespace

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  TVM_FFI_ICHECK(A.ndim() == 2 && A.size(1) == kK) << "A must be [M, 5120]";
  TVM_FFI_ICHECK(B.ndim() == 2 && B.size(0) == kN && B.size(1) == kK) << "B must be [7168, 5120]";
  TVM_FFI_ICHECK(C.ndim() == 2 && C.size(0) == A.size(0) && C.size(1) == kN) << "C must be [M, 7168]";
  const int64_t m = A.size(0);
  if (m == 0) return;
  const int cluster_rows = static_cast<int>((m + kCluster * kTileM - 1) / (kCluster * kTileM));
  const int tiles = cluster_rows * kTilesN;

  int sms = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, A.device().device_id), "multiprocessor count");
  const int most = std::max(1, sms / kCluster);
  const int rounds = (tiles + most - 1) / most;
  const int clusters = (tiles + rounds - 1) / rounds;  // as few as finish in the same number of rounds

  const CUtensorMap a = tensor_map(A.data_ptr(), m, kK, kTileM);
  const CUtensorMap b = tensor_map(B.data_ptr(), kN, kK, kTileN / kCluster);
  const CUtensorMap c = tensor_map(C.data_ptr(), m, kN, 64);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(A.device().device_type, A.device().device_id));
  check(cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes), "shared memory");
  gemm<<<clusters * kCluster, kThreads, kSharedBytes, stream>>>(a, b, c, cluster_rows);
  check(cudaGetLastError(), "gemm launch");
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
