// C[M,7168] = A[M,5120] * B[7168,5120]^T, bf16 in and out, fp32 accumulation, any M >= 1, for Blackwell (sm_100a).
//
// The way of sm_100a.cu with pairs of CTAs: two of them compute 256 x 256 of C at a time. Each loads its own 128 rows of A
// and one half of B; one thread of the even one multiplies for both (tcgen05.mma.cta_group::2, 256x256x16), so that B
// crosses to shared memory once for a pair. What both loaded, and what both stored, is told to the even CTA; that it is
// multiplied, to both.
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

constexpr int kPair = 2;
constexpr int kRows = 128, kTileM = kPair * kRows, kTileN = 256, kSliceK = 64;
constexpr int kStages = 6;
constexpr int kAccumulators = 2;
constexpr int kGroupRows = 8;  // tile rows of C that are walked together, so that their A stays in L2
constexpr int kThreads = 256;   // warp 0 loads, warp 1 multiplies, warp 2 allocates, warps 4 to 7 store
constexpr int kStoreWarps = 4;

constexpr int kBytesA = kRows * kSliceK * 2;
constexpr int kBytesB = kTileN / kPair * kSliceK * 2;
constexpr int kBytesStage = kBytesA + kBytesB;
constexpr int kBoxCols = 64;                      // one SW128 line of bf16
constexpr int kBytesBox = kRows * kBoxCols * 2;  // what is stored at once
constexpr int kBoxes = 2;                         // used in turn
constexpr int kOffsetC = kStages * kBytesStage;
constexpr int kOffsetBarriers = kOffsetC + kBoxes * kBytesBox;
constexpr int kOffsetColumns = kOffsetBarriers + 2 * (kStages + kAccumulators) * 8;
constexpr int kAlign = 1024;  // the SW128 pattern follows the absolute address with this period
constexpr int kSharedBytes = kOffsetColumns + 8 + kAlign;

static_assert(kSharedBytes <= 232448, "opt-in shared memory of one CTA");
static_assert(kAccumulators * kTileN == 512, "all columns of tensor memory");

// D of fp32, A and B of bf16, both K-major, N / 8 and M / 16 (PTX ISA, tcgen05 instruction descriptor).
constexpr uint32_t kInstruction = 1u << 4 | 1u << 7 | 1u << 10 | (kTileN / 8) << 17 | (kTileM / 16) << 24;

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ void cluster_sync() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ bool elected() {
  uint32_t one;
  asm volatile(
      "{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\tselp.u32 %0, 1, 0, p;\n\t}" : "=r"(one));
  return one != 0;
}

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Arrives on the barrier at the same offset in the even CTA.
__device__ __forceinline__ void barrier_arrive_even(uint32_t barrier) {
  asm volatile(
      "{\n\t.reg .b32 even;\n\tmapa.shared::cluster.u32 even, %0, 0;\n\t"
      "mbarrier.arrive.shared::cluster.b64 _, [even];\n\t}" ::"r"(barrier)
      : "memory");
}

__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n\t.reg .pred done;\n"
      "again:\n\tmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
      "@!done bra again;\n\t}" ::"r"(barrier), "r"(parity)
      : "memory");
}

// Tells the bytes to the barrier at this offset in the even CTA: bit 24 is the lowest of the rank.
__device__ __forceinline__ void tma_load(uint32_t dst, const CUtensorMap* map, uint32_t barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(dst),
      "l"(map), "r"(barrier & 0xFEFFFFFFu), "r"(x), "r"(y)
      : "memory");
}

__device__ __forceinline__ void tma_store(const CUtensorMap* map, uint32_t src, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), "r"(src),
               "r"(x), "r"(y)
               : "memory");
}

// Shared-memory operand, K-major, SW128: 8-row groups lie 1024 bytes apart (PTX ISA, tcgen05 matrix descriptor).
__device__ __forceinline__ uint64_t operand(uint32_t address) {
  return (uint64_t)((address & 0x3FFFF) >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 46 |
         (uint64_t)2 << 61;
}

__device__ __forceinline__ void multiply(uint32_t d, uint64_t a, uint64_t b, bool accumulate) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %4, 0;\n\t"
      "tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, p;\n\t}" ::"r"(d),
      "l"(a), "l"(b), "r"(kInstruction), "r"((uint32_t)accumulate)
      : "memory");
}

// Arrives at the barrier in both CTAs when everything that this thread multiplied so far is done.
__device__ __forceinline__ void commit(uint32_t barrier) {
  constexpr uint16_t both = (1 << kPair) - 1;
  asm volatile(
      "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(barrier),
      "h"(both)
      : "memory");
}

__device__ __forceinline__ void fence_before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ __forceinline__ void fence_after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

#define OUT8(i) \
  "=r"(v[i]), "=r"(v[i + 1]), "=r"(v[i + 2]), "=r"(v[i + 3]), "=r"(v[i + 4]), "=r"(v[i + 5]), "=r"(v[i + 6]), \
      "=r"(v[i + 7])

// 64 columns of the lane's row; the wait belongs to the statement, so that nothing uses a register before it.
__device__ __forceinline__ void load_row(uint32_t (&v)[64], uint32_t address) {
  asm volatile(
      "tcgen05.ld.sync.aligned.32x32b.x64.b32 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, [%64];\n\t"
      "tcgen05.wait::ld.sync.aligned;"
      : OUT8(0), OUT8(8), OUT8(16), OUT8(24), OUT8(32), OUT8(40), OUT8(48), OUT8(56)
      : "r"(address)
      : "memory");
}

__device__ __forceinline__ uint32_t pack(uint32_t low, uint32_t high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(__uint_as_float(high)), "f"(__uint_as_float(low)));
  return r;
}

struct Shared {
  uint32_t base;
  __device__ uint32_t a(int stage) const { return base + stage * kBytesStage; }
  __device__ uint32_t b(int stage) const { return a(stage) + kBytesA; }
  __device__ uint32_t c(int box) const { return base + kOffsetC + box * kBytesBox; }
  __device__ uint32_t full(int stage) const { return base + kOffsetBarriers + stage * 8; }
  __device__ uint32_t empty(int stage) const { return full(kStages + stage); }
  __device__ uint32_t ready(int accumulator) const { return full(2 * kStages + accumulator); }
  __device__ uint32_t taken(int accumulator) const { return ready(kAccumulators + accumulator); }
  __device__ uint32_t columns() const { return base + kOffsetColumns; }
};

// A place in a ring, and the parity of its round.
template <int kSize>
struct Ring {
  int place = 0;
  uint32_t parity = 0;
  __device__ void next() {
    if (++place == kSize) place = 0, parity ^= 1;
  }
};

struct Problem {
  int tile_rows, tile_cols, slices;
};

struct Tile {
  int row, col;  // first element
};

__device__ __forceinline__ int first_tile() { return blockIdx.x / kPair; }
__device__ __forceinline__ int tile_step() { return gridDim.x / kPair; }

// Walks C in groups of kGroupRows tile rows, column by column inside a group.
__device__ __forceinline__ Tile tile_of(int index, const Problem& p) {
  const int group = index / (kGroupRows * p.tile_cols);
  const int first = group * kGroupRows;
  const int rows = min(kGroupRows, p.tile_rows - first);
  const int rest = index - group * kGroupRows * p.tile_cols;
  return {(first + rest % rows) * kTileM, rest / rows * kTileN};
}

__device__ __forceinline__ void load_tiles(const Shared& s, const CUtensorMap* a, const CUtensorMap* b,
                                           const Problem& p, int rank) {
  Ring<kStages> ring;
  for (int t = first_tile(); t < p.tile_rows * p.tile_cols; t += tile_step()) {
    const Tile tile = tile_of(t, p);
    for (int k = 0; k < p.slices; ++k, ring.next()) {
      const uint32_t full = s.full(ring.place);
      barrier_wait(s.empty(ring.place), ring.parity ^ 1);
      if (rank == 0) barrier_expect(full, kPair * kBytesStage);
      tma_load(s.a(ring.place), a, full, k * kSliceK, tile.row + rank * kRows);
      tma_load(s.b(ring.place), b, full, k * kSliceK, tile.col + rank * (kTileN / kPair));
    }
  }
}

__device__ __forceinline__ void multiply_tiles(const Shared& s, uint32_t columns, const Problem& p) {
  Ring<kStages> ring;
  Ring<kAccumulators> out;
  for (int t = first_tile(); t < p.tile_rows * p.tile_cols; t += tile_step(), out.next()) {
    const uint32_t d = columns + out.place * kTileN;
    barrier_wait(s.taken(out.place), out.parity ^ 1);
    fence_after();
    for (int k = 0; k < p.slices; ++k, ring.next()) {
      barrier_wait(s.full(ring.place), ring.parity);
      fence_after();
      const uint64_t a = operand(s.a(ring.place)), b = operand(s.b(ring.place));
#pragma unroll
      for (int step = 0; step < kSliceK / 16; ++step) {
        multiply(d, a + step * 2, b + step * 2, k > 0 || step > 0);  // 32 bytes, in units of 16
      }
      commit(s.empty(ring.place));
    }
    commit(s.ready(out.place));
  }
}

// Stores an accumulator in boxes of 64 columns, two boxes in flight; each thread has one row.
__device__ __forceinline__ void store_tiles(const Shared& s, uint32_t columns, const CUtensorMap* c,
                                            const Problem& p, int rank) {
  const int row = threadIdx.x % 128;
  const bool first = row == 0;
  Ring<kAccumulators> in;
  for (int t = first_tile(); t < p.tile_rows * p.tile_cols; t += tile_step(), in.next()) {
    const Tile tile = tile_of(t, p);
    const uint32_t d = columns + in.place * kTileN + ((uint32_t)(row / 32 * 32) << 16);
    barrier_wait(s.ready(in.place), in.parity);
    fence_after();
#pragma unroll 1
    for (int box = 0; box < kTileN / kBoxCols; ++box) {
      uint32_t v[64];
      load_row(v, d + box * kBoxCols);
      if (box == kTileN / kBoxCols - 1) {
        fence_before();
        if (row % 32 == 0) barrier_arrive_even(s.taken(in.place));
      }
      const uint32_t line = s.c(box % kBoxes) + row * 128;
      if (first) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kBoxes - 1) : "memory");
      asm volatile("bar.sync 1, 128;" ::: "memory");
#pragma unroll
      for (int chunk = 0; chunk < 8; ++chunk) {
        const uint32_t* w = v + chunk * 8;
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(line + ((chunk ^ (row % 8)) * 16)),
                     "r"(pack(w[0], w[1])), "r"(pack(w[2], w[3])), "r"(pack(w[4], w[5])), "r"(pack(w[6], w[7]))
                     : "memory");
      }
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      asm volatile("bar.sync 1, 128;" ::: "memory");
      if (first) {
        tma_store(c, s.c(box % kBoxes), tile.col + box * kBoxCols, tile.row + rank * kRows);  // rows beyond M are clipped
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      }
    }
  }
  if (first) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

__device__ __forceinline__ void init_barriers(const Shared& s) {
  for (int i = 0; i < kStages; ++i) {
    barrier_init(s.full(i), 1);
    barrier_init(s.empty(i), 1);
  }
  for (int i = 0; i < kAccumulators; ++i) {
    barrier_init(s.ready(i), 1);
    barrier_init(s.taken(i), kPair * kStoreWarps);
  }
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__global__ void __cluster_dims__(kPair, 1, 1) __launch_bounds__(kThreads, 1)
    gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
         const __grid_constant__ CUtensorMap map_c, Problem p) {
  extern __shared__ uint8_t raw[];
  const Shared s{((uint32_t)__cvta_generic_to_shared(raw) + kAlign - 1) & ~(uint32_t)(kAlign - 1)};
  const int rank = cluster_rank();
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);  // uniform registers for what depends on it
  if (warp == 0 && elected()) init_barriers(s);
  if (warp == 2) {
    asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], 512;" ::"r"(s.columns()) : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;" ::: "memory");
  }
  fence_before();
  cluster_sync();
  fence_after();
  uint32_t columns;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(columns) : "r"(s.columns()) : "memory");

  if (warp == 0) {
    if (elected()) load_tiles(s, &map_a, &map_b, p, rank);
  } else if (warp == 1) {
    if (rank == 0 && elected()) multiply_tiles(s, columns, p);
  } else if (warp >= 4) {
    store_tiles(s, columns, &map_c, p, rank);
  }
  fence_before();
  cluster_sync();  // the pair multiplies out of this CTA's shared memory, and arrives on its barriers
  if (warp == 2) {
    fence_after();
    asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, 512;" ::"r"(columns) : "memory");
  }
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
  TVM_FFI_ICHECK(A.ndim() == 2 && B.ndim() == 2 && C.ndim() == 2) << "A, B and C must be matrices";
  const int64_t m = A.size(0), n = B.size(0), k = A.size(1);
  TVM_FFI_ICHECK(n % kTileN == 0 && k % kSliceK == 0) << "N must be a multiple of 256, K of 64";
  TVM_FFI_ICHECK(B.size(1) == k) << "B must be [N, K]";
  TVM_FFI_ICHECK(C.size(0) == m && C.size(1) == n) << "C must be [M, N]";
  if (m == 0) return;
  const Problem p{static_cast<int>((m + kTileM - 1) / kTileM), static_cast<int>(n / kTileN),
                  static_cast<int>(k / kSliceK)};
  const int tiles = p.tile_rows * p.tile_cols;

  int sms = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, A.device().device_id), "multiprocessor count");
  const int most = std::max(1, sms / kPair);
  const int rounds = (tiles + most - 1) / most;
  const int pairs = (tiles + rounds - 1) / rounds;  // as few as finish in the same number of rounds

  const CUtensorMap a = tensor_map(A.data_ptr(), m, k, kRows);
  const CUtensorMap b = tensor_map(B.data_ptr(), n, k, kTileN / kPair);
  const CUtensorMap c = tensor_map(C.data_ptr(), m, n, kRows);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(A.device().device_type, A.device().device_id));
  check(cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes), "shared memory");
  gemm<<<pairs * kPair, kThreads, kSharedBytes, stream>>>(a, b, c, p);
  check(cudaGetLastError(), "gemm launch");
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
