// O = softmax(Q K^T / sqrt(128)) V and LSE = ln(sum(exp(Q K^T / sqrt(128)))), full attention, for Hopper (sm_90a).
// Q, K, V, O are [B, H, S, 128] bf16, LSE is [B, H, S] fp32; any S >= 1.
//
// Persistent CTAs. One tile is 128 rows of one head: two consumer warpgroups of 64 rows, fed by one producer thread
// (TMA, SW128) through rings of K and V blocks of 128 rows. A consumer keeps two products in flight, the scores of the
// next block and the output of the last one, and computes the softmax of the next block while the latter runs; the
// stream of blocks does not stop between two tiles, so a tile is finished under the first scores of its successor.
// The warpgroups take turns in issuing, which puts the softmax of one under the products of the other (the ping-pong
// of the FlashAttention-3 paper, arXiv 2407.08608). Blocks are walked from the last to the first, so that only the
// first block of a tile can need a mask. Tiles are drawn from a counter, the longest of a group of heads first.
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

constexpr bool kCausal = false;
constexpr int kDim = 128;
constexpr int kGroups = 2;                   // consumer warpgroups, 64 rows of a tile each
constexpr int kBlock = kGroups * 64;         // rows of Q in a tile; rows of K and V in a block
constexpr int kStages = 3;                   // of the ring of K and of that of V
constexpr int kThreads = 128 * (1 + kGroups);  // producer warpgroup first
constexpr float kScale = 0.08838834764831845f;  // 1 / sqrt(kDim)
constexpr float kLn2 = 0.6931471805599453f;
constexpr float kScaleLog2 = kScale / kLn2;  // scores are exponents of two from here on
constexpr int kGroupBytes = 24 << 20;        // K and V of the heads that are walked together stay in L2
constexpr int kBytesQ = 64 * kDim * 2;       // of one warpgroup
constexpr int kBytesKV = kBlock * kDim * 2;  // of one block of K or V
constexpr int kOffsetK = kGroups * kBytesQ;
constexpr int kOffsetBarriers = kOffsetK + 2 * kStages * kBytesKV;
constexpr int kOffsetTile = kOffsetBarriers + (4 * kStages + 2 * kGroups) * 8;
constexpr int kAlign = 1024;  // the SW128 pattern follows the absolute address with this period
constexpr int kSharedBytes = kOffsetTile + kGroups * 4 + kAlign;
static_assert(kSharedBytes <= 232448, "opt-in shared memory of one CTA");

__device__ unsigned counter;  // zero between launches, which must therefore be in one order (one stream)

struct Args {
  CUtensorMap q, k, v;
  __nv_bfloat16* o;
  float* lse;
  int rows, heads, tiles_per_head, heads_per_group;
};

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile("{\n\t.reg .pred done;\nagain:\n\tmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
               "@!done bra again;\n\t}" ::"r"(barrier), "r"(parity) : "memory");
}
// Both 64-column halves of some rows of one head, the second half behind the first; rows beyond the head read as zero.
__device__ __forceinline__ void tma_load(uint32_t dst, const CUtensorMap* map, uint32_t barrier, int row, int head) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3, %4, %3, %5}], [%2];" ::"r"(dst), "l"(map), "r"(barrier), "r"(0), "r"(row), "r"(head)
               : "memory");
}

// Shared-memory operands in SW128 (PTX ISA, wgmma matrix descriptor): groups of 8 rows lie 1024 bytes apart. With the
// product's inner dimension along the row the other stride is unused; across the rows it leads to the second half.
__device__ __forceinline__ uint64_t operand(uint32_t address, uint32_t half_bytes) {
  return (uint64_t)((address & 0x3FFFF) >> 4) | (uint64_t)(half_bytes >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
         (uint64_t)1 << 62;
}

#define ACC8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
                "+f"(d[i + 6]), "+f"(d[i + 7])
#define ACC64 ACC8(0), ACC8(8), ACC8(16), ACC8(24), ACC8(32), ACC8(40), ACC8(48), ACC8(56)
#define REGS64                                                                                 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, " \
  "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, " \
  "%56, %57, %58, %59, %60, %61, %62, %63"

// d (64 x 128, fp32) = a (64 x 16) * b (128 x 16)^T, plus the old d unless `accumulate` is 0.
__device__ __forceinline__ void wgmma_scores(float (&d)[64], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %66, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" REGS64 "}, %64, %65, p, 1, 1, 0, 0;\n\t}"
      : ACC64 : "l"(a), "l"(b), "r"(accumulate));
}
// d (64 x 128, fp32) += a (64 x 16, in registers) * b (16 x 128).
__device__ __forceinline__ void wgmma_output(float (&d)[64], const uint32_t* a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" REGS64 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
      : ACC64 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Keeps the compiler from moving uses of registers across the wait for a product that is next to this.
__device__ __forceinline__ void pin(float (&d)[64]) {
#pragma unroll
  for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
__device__ __forceinline__ uint32_t pack(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ __forceinline__ float exp2_approx(float x) {
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
  return x;
}

struct Shared {
  uint32_t base;
  __device__ uint32_t q(int group) const { return base + group * kBytesQ; }
  __device__ uint32_t q_full(int group) const { return base + kOffsetBarriers + (4 * kStages + group) * 8; }
  __device__ uint32_t q_empty(int group) const { return q_full(group) + kGroups * 8; }
  __device__ uint32_t tile(int group) const { return base + kOffsetTile + group * 4; }
};
// The blocks of K (which = 0) or V (which = 1) in shared memory.
struct Ring {
  uint32_t data, barriers, stage = 0, parity = 0;
  __device__ Ring(const Shared& s, int which)
      : data(s.base + kOffsetK + which * kStages * kBytesKV),
        barriers(s.base + kOffsetBarriers + which * kStages * 16) {}
  __device__ uint32_t block() const { return data + stage * kBytesKV; }
  __device__ uint32_t full() const { return barriers + stage * 8; }
  __device__ uint32_t empty() const { return full() + kStages * 8; }
  __device__ void next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

struct Tile {
  int head, row, blocks;  // row: the first one
};
// Walks the heads in groups and each group from the last rows to the first.
__device__ __forceinline__ Tile tile_of(int index, const Args& args) {
  const int group = index / (args.heads_per_group * args.tiles_per_head);
  const int first = group * args.heads_per_group;
  const int heads = min(args.heads_per_group, args.heads - first);
  const int rest = index - first * args.tiles_per_head;
  const int tile = args.tiles_per_head - 1 - rest / heads;
  return {first + rest % heads, tile * kBlock, kCausal ? tile + 1 : args.tiles_per_head};
}
// The next tile, or -1 after the last. Whoever draws the last ticket of all leaves the counter at zero again.
__device__ __forceinline__ int draw(const Args& args) {
  const unsigned tiles = args.heads * args.tiles_per_head;
  const unsigned ticket = atomicAdd(&counter, 1);
  if (ticket == tiles + gridDim.x - 1) counter = 0;
  return ticket < tiles ? (int)ticket : -1;
}

__device__ __forceinline__ void load_block(const CUtensorMap* map, Ring& ring, int block, int head) {
  barrier_wait(ring.empty(), ring.parity ^ 1);
  barrier_expect(ring.full(), kBytesKV);
  tma_load(ring.block(), map, ring.full(), block * kBlock, head);
  ring.next();
}
__device__ __forceinline__ void produce(const Shared& s, const Args& args) {
  Ring k(s, 0), v(s, 1);
  uint32_t parity = 1;
  for (int index = draw(args);; index = draw(args)) {
    const Tile t = tile_of(max(index, 0), args);
    if (index >= 0) load_block(&args.k, k, t.blocks - 1, t.head);
    for (int group = 0; group < kGroups; ++group) {
      barrier_wait(s.q_empty(group), parity);
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(s.tile(group)), "r"(index) : "memory");
      barrier_expect(s.q_full(group), index < 0 ? 0 : kBytesQ);
      if (index >= 0) tma_load(s.q(group), &args.q, s.q_full(group), t.row + group * 64, t.head);
    }
    if (index < 0) return;
    parity ^= 1;
    for (int block = t.blocks - 1; block >= 0; --block) {
      if (block > 0) load_block(&args.k, k, block - 1, t.head);
      load_block(&args.v, v, block, t.head);
    }
  }
}

// One consumer warpgroup. A thread holds two rows of the tile, 8 apart, of which it shares each with three others.
struct Consumer {
  const Shared s;
  const Args& args;
  const int group, lane = threadIdx.x % 32;
  const int row = group * 64 + threadIdx.x % 128 / 32 * 16 + lane / 4;  // in the tile, the first of the two
  Ring k{s, 0}, v{s, 1};
  uint32_t q_parity = 0;
  float x[64], o[64];    // scores, then probabilities; output
  uint32_t p[32];        // the probabilities that are being multiplied by V
  float top[2], sum[2];  // largest score; this thread's part of the sum of probabilities
  // Barriers 1 and 2: the warpgroup whose turn it is to issue. The other one has arrived there after its own turn.
  __device__ void take_turn() const { asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory"); }
  __device__ void pass_turn() const { asm volatile("bar.arrive %0, 256;" ::"r"(2 - group) : "memory"); }
  __device__ __forceinline__ void release(uint32_t barrier) const {
    if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
  }
  __device__ __forceinline__ int next_tile() {
    barrier_wait(s.q_full(group), q_parity);
    q_parity ^= 1;
    int index;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(index) : "r"(s.tile(group)) : "memory");
    return __shfl_sync(0xffffffff, index, 0);  // uniform, so that what depends on it is
  }
  __device__ __forceinline__ void start_scores() {
    const uint64_t a = operand(s.q(group), 16), b = operand(k.block(), 16);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step) {
      const int half = step / 4, offset = step % 4 * 32;
      wgmma_scores(x, a + ((half * kBytesQ / 2 + offset) >> 4), b + ((half * kBytesKV / 2 + offset) >> 4), step > 0);
    }
    wgmma_commit();
  }
  __device__ __forceinline__ void start_output() {
    barrier_wait(v.full(), v.parity);
    const uint64_t b = operand(v.block(), kBytesKV / 2);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kBlock / 16; ++step) wgmma_output(o, p + 4 * step, b + (step * 2048 >> 4));
    wgmma_commit();
  }
  template <int kPending>
  __device__ __forceinline__ void end_scores(bool last) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
    pin(x);
    release(k.empty());
    if (last) release(s.q_empty(group));
    k.next();
  }
  __device__ __forceinline__ void end_output() {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    pin(o);
    release(v.empty());
    v.next();
  }
  // Turns scores into probabilities; returns by how much what was summed before must shrink. The first block of a tile
  // starts afresh and hides the columns that a row must not see.
  template <bool kFirst>
  __device__ __forceinline__ void softmax(float (&shrink)[2], const Tile& t) {
    const int keys = args.rows - (t.blocks - 1) * kBlock;
#pragma unroll
    for (int i = 0; i < 64 && kFirst && (kCausal || keys < kBlock); ++i) {
      if (i / 4 * 8 + lane % 4 * 2 + i % 2 >= (kCausal ? row + i / 2 % 2 * 8 + 1 : keys)) x[i] = -INFINITY;
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float high = x[2 * h], total = 0.f;
#pragma unroll
      for (int i = 1; i < 32; ++i) high = fmaxf(high, x[i / 2 * 4 + 2 * h + i % 2]);
      high = fmaxf(high, __shfl_xor_sync(0xffffffff, high, 1));
      high = fmaxf(high, __shfl_xor_sync(0xffffffff, high, 2));
      if (!kFirst) high = fmaxf(high, top[h]);
      shrink[h] = kFirst ? 0.f : exp2_approx((top[h] - high) * kScaleLog2);
      top[h] = high;
      high *= kScaleLog2;
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        float& value = x[i / 2 * 4 + 2 * h + i % 2];
        value = exp2_approx(fmaf(value, kScaleLog2, -high));
        total += value;
      }
      sum[h] = kFirst ? total : fmaf(sum[h], shrink[h], total);
    }
    pin(x);
  }
  // Divides by the sums and writes the tile.
  __device__ __forceinline__ void finish(const Tile& t, const float (&top)[2], const float (&sum)[2]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float total = sum[h] + __shfl_xor_sync(0xffffffff, sum[h], 1);
      total += __shfl_xor_sync(0xffffffff, total, 2);
      const float inverse = 1.f / total;
      const int y = t.row + row + 8 * h;
      const size_t line = (size_t)t.head * args.rows + y;
      uint32_t* out = reinterpret_cast<uint32_t*>(args.o + line * kDim) + lane % 4;
      if (lane % 4 == 0 && y < args.rows) args.lse[line] = fmaf(top[h], kScale, __log2f(total) * kLn2);
#pragma unroll
      for (int i = 2 * h; i < 64; i += 4) {
        if (y < args.rows) out[i / 4 * 4] = pack(o[i] * inverse, o[i + 1] * inverse);
      }
    }
  }
  // Scores of the next block and, unless it is the very first, output of the last one. With kFirst the block is the
  // first of tile t, and the output completes the tile `before`.
  template <bool kFirst, bool kOutput>
  __device__ __forceinline__ void advance(bool last, const Tile& t, const Tile& before) {
    const float old_top[2] = {top[0], top[1]}, old_sum[2] = {sum[0], sum[1]};
    float shrink[2];
    barrier_wait(k.full(), k.parity);
    take_turn();
    start_scores();
    if (kOutput) start_output();
    pass_turn();
    end_scores<kOutput>(last);
    softmax<kFirst>(shrink, t);
    if (kOutput) end_output();
    if (kFirst && kOutput) finish(before, old_top, old_sum);
#pragma unroll
    for (int i = 0; i < 64; ++i) o[i] = kFirst ? 0.f : o[i] * shrink[i / 2 % 2];
#pragma unroll
    for (int i = 0; i < 32; ++i) p[i] = pack(x[2 * i], x[2 * i + 1]);
  }
  __device__ __forceinline__ void consume() {
    if (group == 1) pass_turn();
    int index = next_tile();
    if (index >= 0) {
      Tile t = tile_of(index, args), before;
      advance<true, false>(t.blocks == 1, t, t);
      while (true) {
        for (int block = t.blocks - 2; block >= 0; --block) advance<false, true>(block == 0, t, t);
        index = next_tile();
        if (index < 0) break;
        before = t;
        t = tile_of(index, args);
        advance<true, true>(t.blocks == 1, t, before);
      }
      start_output();
      end_output();
      finish(t, top, sum);
    }
    if (group == 0) take_turn();  // nobody leaves with a barrier half full
  }
};

__global__ void __launch_bounds__(kThreads, 1) attention(const __grid_constant__ Args args) {
  extern __shared__ uint8_t raw[];
  const Shared s{((uint32_t)__cvta_generic_to_shared(raw) + kAlign - 1) & ~(uint32_t)(kAlign - 1)};
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) {
    for (Ring ring : {Ring(s, 0), Ring(s, 1)}) {
      for (; ring.parity == 0; ring.next()) barrier_init(ring.full(), 1), barrier_init(ring.empty(), 4 * kGroups);
    }
    for (int i = 0; i < kGroups; ++i) barrier_init(s.q_full(i), 1), barrier_init(s.q_empty(i), 4);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (warpgroup == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) produce(s, args);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    Consumer{s, args, warpgroup - 1}.consume();
  }
}

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorString(error);
}

// [heads, rows, 128] as (64 columns, row, half, head), read in SW128 boxes of both halves of box_rows rows.
CUtensorMap tensor_map(const tvm::ffi::TensorView& x, uint32_t box_rows) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found), "driver");
  TVM_FFI_ICHECK(entry != nullptr && found == cudaDriverEntryPointSuccess) << "the driver cannot encode tensor maps";
  CUtensorMap map;
  const cuuint64_t rows = x.size(2), dims[] = {kDim / 2, rows, 2, (cuuint64_t)(x.size(0) * x.size(1))};
  const cuuint64_t strides[] = {kDim * 2, kDim, rows * kDim * 2};
  const cuuint32_t box[] = {kDim / 2, box_rows, 2, 1}, steps[] = {1, 1, 1, 1};
  const CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, x.data_ptr(), dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TVM_FFI_ICHECK(result == CUDA_SUCCESS) << "cuTensorMapEncodeTiled failed with code " << static_cast<int>(result);
  return map;
}

}  // namespace

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  for (const auto& x : {Q, K, V, O}) {
    TVM_FFI_ICHECK(x.ndim() == 4 && x.size(0) == Q.size(0) && x.size(1) == Q.size(1) && x.size(2) == Q.size(2) &&
                   x.size(3) == kDim) << "Q, K, V and O must be [B, H, S, 128]";
  }
  TVM_FFI_ICHECK(LSE.numel() * kDim == Q.numel()) << "LSE must be [B, H, S]";
  if (Q.numel() == 0) return;
  const int heads = static_cast<int>(Q.size(0) * Q.size(1)), rows = static_cast<int>(Q.size(2));
  const int tiles_per_head = (rows + kBlock - 1) / kBlock;
  const int fit = std::clamp(kGroupBytes / (rows * kDim * 2 * 2), 1, heads);
  const Args args{tensor_map(Q, 64), tensor_map(K, kBlock), tensor_map(V, kBlock),
                  static_cast<__nv_bfloat16*>(O.data_ptr()), static_cast<float*>(LSE.data_ptr()), rows, heads,
                  tiles_per_head, kCausal ? fit : 1};  // without a mask all tiles are equal: head by head

  int sms = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, Q.device().device_id), "multiprocessor count");
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  check(cudaFuncSetAttribute(attention, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes), "shared memory");
  attention<<<std::min(sms, heads * tiles_per_head), kThreads, kSharedBytes, stream>>>(args);
  check(cudaGetLastError(), "attention launch");
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
