// Gradients of O = softmax(Q K^T / sqrt(128)) V, full attention, for Hopper (sm_90a). Q, K, V, O, dO, dQ, dK, dV are
// [B, H, S, 128] bf16, LSE is [B, H, S] fp32 (natural logarithm); any S >= 1. No atomic sums: equal bits on every run.
//
// Three kernels. The first puts -LSE log2(e) and -D / sqrt(128) of every row, D = rowsum(dO O), into a workspace. The
// second owns 128 keys per tile and walks blocks of 64 queries: with P = exp(Q K^T / sqrt(128) - LSE), dP = dO V^T and
// dS = P (dP - D) / sqrt(128) it sums dV = P^T dO and dK = dS^T Q. The third owns 128 queries, walks blocks of 128 keys
// and computes P and dS again for dQ = dS K: seven products for five, but no sum leaves a CTA (arXiv 2307.08691). dS is
// rounded to bf16 with its scale, as cuDNN does it: most bits of the gradients are then those of cuDNN.
//
// The last two are one template. Persistent CTAs: two consumer warpgroups of 64 owned rows, fed by one producer thread
// (TMA, SW128). Where keys are owned the scores are transposed, so P and dS go from the accumulators straight into the
// next products. Element-wise work lies under products: scores, dP | exp | P^T dO | dS | dS^T Q, next scores.
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
constexpr int kGroups = 2;                      // consumer warpgroups, 64 rows of a tile each
constexpr int kTile = kGroups * 64;             // rows that a CTA owns at a time
constexpr int kThreads = 128 * (1 + kGroups);   // producer warpgroup first
constexpr float kScale = 0.08838834764831845f, kLog2e = 1.4426950408889634f;  // 1 / sqrt(kDim), 1 / ln(2)
constexpr int kGroupBytes = 24 << 20;         // what is read of the heads that are walked together stays in L2
constexpr int kBytesOwn = 64 * kDim * 2;      // of one operand of one warpgroup
constexpr int kBytesVectors = 2 * 64 * 4;     // both numbers of 64 rows, behind each other
constexpr int kBytesRing = 128 << 10, kOffsetRing = 2 * kGroups * kBytesOwn;
constexpr int kOffsetVectors = kOffsetRing + kBytesRing, kOffsetBarriers = kOffsetVectors + 4 * kBytesVectors;
constexpr int kOffsetTile = kOffsetBarriers + (2 * 4 + 2 * kGroups) * 8;
constexpr int kAlign = 1024;  // the SW128 pattern follows the absolute address with this period
constexpr int kSharedBytes = kOffsetTile + kGroups * 4 + kAlign;
static_assert(kSharedBytes <= 232448, "opt-in shared memory of one CTA");

__device__ unsigned counter;  // zero between launches, which must therefore be in one order (one stream)
// Own rows `a` and walked rows `b`: (K, V) and (Q, dO) where keys are owned, the other way round for queries.
struct Args {
  CUtensorMap a[2], b[2];
  const float* vectors;    // [heads, tiles_per_head * kTile / 64, 2, 64]
  uint32_t* out[2];       // dK and dV, or dQ
  int rows, heads, tiles_per_head, heads_per_group;
  __device__ const float* vectors_of(int head, int block) const {
    return vectors + (size_t)(head * tiles_per_head * 2 + block) * 128;
  }
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
__device__ __forceinline__ void bulk_load(uint32_t dst, const void* src, uint32_t barrier, uint32_t bytes) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst),
               "l"(src), "r"(bytes), "r"(barrier) : "memory");
}
// Shared-memory operands in SW128 (PTX ISA, wgmma matrix descriptor): groups of 8 rows lie 1024 bytes apart. With the
// product's inner dimension along the row the other stride is unused; across the rows it leads to the second half.
__device__ __forceinline__ uint64_t operand(uint32_t address, uint32_t half_bytes) {
  return (uint64_t)((address & 0x3FFFF) >> 4) | (uint64_t)(half_bytes >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
         (uint64_t)1 << 62;
}
#define ACC8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
                "+f"(d[i + 6]), "+f"(d[i + 7])
#define ACC32 ACC8(0), ACC8(8), ACC8(16), ACC8(24)
#define ACC64 ACC32, ACC8(32), ACC8(40), ACC8(48), ACC8(56)
#define REGS32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
               "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGS64 REGS32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA(shape, flag, operands)                         \
  "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" #flag ", 0;\n\t"   \
  "wgmma.mma_async.sync.aligned." #shape "k16.f32.bf16.bf16 {" operands ";\n\t}"
// d (64 x 64 or 64 x 128, fp32) = a (64 x 16) * b (64 or 128 x 16)^T, plus the old d unless `more` is 0.
__device__ __forceinline__ void wgmma_rows(float (&d)[32], uint64_t a, uint64_t b, int more) {
  asm volatile(WGMMA(m64n64, 34, REGS32 "}, %32, %33, p, 1, 1, 0, 0") : ACC32 : "l"(a), "l"(b), "r"(more));
}
__device__ __forceinline__ void wgmma_rows(float (&d)[64], uint64_t a, uint64_t b, int more) {
  asm volatile(WGMMA(m64n128, 66, REGS64 "}, %64, %65, p, 1, 1, 0, 0") : ACC64 : "l"(a), "l"(b), "r"(more));
}
// d (64 x 128, fp32) = a (64 x 16, in registers) * b (16 x 128), plus the old d unless `more` is 0.
__device__ __forceinline__ void wgmma_sum(float (&d)[64], const uint32_t* a, uint64_t b, int more) {
  asm volatile(WGMMA(m64n128, 69, REGS64 "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1") : ACC64
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(more));
}
// Waits until at most kPending groups of products run, and keeps the compiler from using d before.
template <int kPending, int kSize>
__device__ __forceinline__ void wgmma_wait(float (&d)[kSize]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
  for (int i = 0; i < kSize; ++i) asm volatile("" : "+f"(d[i])::"memory");
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

template <bool kKeys>
struct Shared {
  static constexpr int kBlock = kKeys ? 64 : 128, kBytesBlock = kBlock * kDim * 2;  // walked rows
  static constexpr int kStages = kBytesRing / (2 * kBytesBlock);
  uint32_t base, stage = 0, parity = 0;
  __device__ uint32_t own(int group, int which) const { return base + (group * 2 + which) * kBytesOwn; }
  __device__ uint32_t own_full(int group) const { return base + kOffsetBarriers + (2 * kStages + group) * 8; }
  __device__ uint32_t own_empty(int group) const { return own_full(group) + kGroups * 8; }
  __device__ uint32_t tile(int group) const { return base + kOffsetTile + group * 4; }
  __device__ uint32_t block(int which) const { return base + kOffsetRing + (stage * 2 + which) * kBytesBlock; }
  __device__ uint32_t vectors() const { return base + kOffsetVectors + stage * kBytesVectors; }
  __device__ uint32_t full() const { return base + kOffsetBarriers + stage * 8; }
  __device__ uint32_t empty() const { return full() + kStages * 8; }
  __device__ void next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};
// The first own row, the first walked block (the diagonal one if causal) and the number of walked blocks.
struct Tile { int head, row, first, blocks; };
// Walks the heads in groups, and in each group the longest tiles first.
template <bool kKeys>
__device__ __forceinline__ Tile tile_of(int index, const Args& args) {
  const int tiles = args.tiles_per_head, start = index / (args.heads_per_group * tiles) * args.heads_per_group;
  const int heads = min(args.heads_per_group, args.heads - start), rest = index - start * tiles;
  const int tile = kKeys ? rest / heads : tiles - 1 - rest / heads, head = start + rest % heads;
  if (kKeys) return {head, tile * kTile, kCausal ? 2 * tile : 0, 2 * (kCausal ? tiles - tile : tiles)};
  return {head, tile * kTile, kCausal ? tile : tiles - 1, kCausal ? tile + 1 : tiles};
}
// The next tile, or -1 after the last. Whoever draws the last ticket of all leaves the counter at zero again.
__device__ __forceinline__ int draw(const Args& args) {
  const unsigned tiles = args.heads * args.tiles_per_head, ticket = atomicAdd(&counter, 1);
  if (ticket == tiles + gridDim.x - 1) counter = 0;
  return ticket < tiles ? (int)ticket : -1;
}
template <bool kKeys>
__device__ __forceinline__ void produce(Shared<kKeys> s, const Args& args) {
  uint32_t parity = 1;
  for (int index = draw(args);; index = draw(args)) {
    const Tile t = tile_of<kKeys>(max(index, 0), args);
#pragma unroll 1  // this thread has few registers
    for (int group = 0; group < kGroups; ++group) {
      barrier_wait(s.own_empty(group), parity);
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(s.tile(group)), "r"(index) : "memory");
      barrier_expect(s.own_full(group), index < 0 ? 0 : 2 * kBytesOwn);
      if (index < 0) continue;
      tma_load(s.own(group, 0), &args.a[0], s.own_full(group), t.row + group * 64, t.head);
      tma_load(s.own(group, 1), &args.a[1], s.own_full(group), t.row + group * 64, t.head);
    }
    if (index < 0) return;
    parity ^= 1;
#pragma unroll 1
    for (int i = 0; i < t.blocks; ++i, s.next()) {
      const int block = kKeys ? t.first + i : t.first - i;
      barrier_wait(s.empty(), s.parity ^ 1);
      barrier_expect(s.full(), 2 * s.kBytesBlock + kKeys * kBytesVectors);
      tma_load(s.block(0), &args.b[0], s.full(), block * s.kBlock, t.head);
      tma_load(s.block(1), &args.b[1], s.full(), block * s.kBlock, t.head);
      if (kKeys) bulk_load(s.vectors(), args.vectors_of(t.head, block), s.full(), kBytesVectors);
    }
  }
}

// One consumer warpgroup. A thread holds two own rows, 8 apart, each shared with three other threads.
template <bool kKeys>
struct Consumer {
  static constexpr int kBlock = Shared<kKeys>::kBlock, kHalf = kBlock * 128;  // bytes of 64 columns of a block
  Shared<kKeys> s;
  const Args& args;
  const int group, lane = threadIdx.x % 32;
  const int row = threadIdx.x % 128 / 32 * 16 + lane / 4;  // of the warpgroup's 64, the first of the two
  uint32_t own_parity = 0;
  float x[kBlock / 2], y[kBlock / 2];  // scores, then P; dP
  float out1[64], out2[64];            // sums of dS times b1 and of P times b2 (the latter if keys are owned)
  __device__ __forceinline__ void release(uint32_t barrier) const {
    if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
  }
  __device__ __forceinline__ int next_tile() {
    barrier_wait(s.own_full(group), own_parity);
    own_parity ^= 1;
    const int index = *static_cast<const int*>(__cvta_shared_to_generic(s.tile(group)));
    return __shfl_sync(0xffffffff, index, 0);  // uniform, so that what depends on it is
  }
  // d = own rows times the walked block, of the first (scores) or the second (dP) operands.
  __device__ __forceinline__ void start_rows(float (&d)[kBlock / 2], int which) {
    const uint64_t a = operand(s.own(group, which), 16), b = operand(s.block(which), 16);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int step = 0; step < kDim / 16; ++step) {
      const int half = step / 4, offset = step % 4 * 32;
      wgmma_rows(d, a + ((half * kBytesOwn / 2 + offset) >> 4), b + ((half * kHalf + offset) >> 4), step > 0);
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }
  __device__ __forceinline__ void start_sum(float (&d)[64], const uint32_t (&a)[kBlock / 4], int which, bool more) {
    const uint64_t b = operand(s.block(which), kHalf);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int step = 0; step < kBlock / 16; ++step) wgmma_sum(d, a + 4 * step, b + (step * 2048 >> 4), more || step > 0);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }
  // The two numbers (0: -LSE log2(e), 1: D) that belong to elements 4 j ... 4 j + 3 of x and y: by column, or by row.
  __device__ __forceinline__ float2 numbers(float2 rows, int which, int j) const {
    if (!kKeys) return rows;
    const uint32_t address = s.vectors() + which * 256 + (j * 8 + lane % 4 * 2) * 4;
    return *static_cast<const float2*>(__cvta_shared_to_generic(address));
  }
  // Hides the elements of the first block that a row must not see; other elements beyond S are harmless.
  __device__ __forceinline__ void mask(const Tile& t) {
    const int keys = kCausal || kKeys ? 0 : args.rows - t.first * kBlock;
    for (int i = 0; i < kBlock / 2 && (kKeys ? kCausal : keys < kBlock); ++i) {
      const int col = i / 4 * 8 + lane % 4 * 2 + i % 2, own = row + i / 2 % 2 * 8;
      if (kKeys ? col < own : col >= (kCausal ? group * 64 + own + 1 : keys)) x[i] = -INFINITY;
    }
  }
  __device__ __forceinline__ void exponentiate(float2 rows, uint32_t (&p)[kBlock / 4]) {
    for (int j = 0; j < kBlock / 8; ++j) {
      const float2 n = numbers(rows, 0, j);
      float* d = x + 4 * j;
      for (int i = 0; i < 4; ++i) d[i] = exp2_approx(fmaf(d[i], kScale * kLog2e, (kKeys ? i % 2 : i / 2) ? n.y : n.x));
      p[2 * j] = pack(d[0], d[1]);
      p[2 * j + 1] = pack(d[2], d[3]);
    }
  }
  __device__ __forceinline__ void differentiate(float2 rows, uint32_t (&p)[kBlock / 4]) const {
    for (int j = 0; j < kBlock / 8; ++j) {
      const float2 n = numbers(rows, 1, j);
      const float *d = x + 4 * j, *e = y + 4 * j;
      float f[4];
      for (int i = 0; i < 4; ++i) f[i] = d[i] * fmaf(e[i], kScale, (kKeys ? i % 2 : i / 2) ? n.y : n.x);
      p[2 * j] = pack(f[0], f[1]);
      p[2 * j + 1] = pack(f[2], f[3]);
    }
  }
  // One tile, whose first scores already run.
  __device__ __forceinline__ void walk(const Tile& t, int blocks) {
    float2 minus_lse{}, delta{};
    if (!kKeys) {
      const float* own = args.vectors_of(t.head, t.row / 64 + group) + row;
      minus_lse = {own[0], own[8]}, delta = {own[64], own[72]};
    }
    for (int i = 0;; ++i) {
      uint32_t p[kBlock / 4], q[kBlock / 4];  // P and dS as operands
      start_rows(y, 1);
      wgmma_wait<1>(x);
      if (i == 0) mask(t);
      exponentiate(minus_lse, p);
      if (kKeys) start_sum(out2, p, 1, i > 0);
      wgmma_wait<kKeys>(y);
      if (i == blocks - 1) release(s.own_empty(group));
      differentiate(delta, q);
      start_sum(out1, q, 0, i > 0);
      const uint32_t used = s.empty();
      s.next();
      if (i == blocks - 1) {
        wgmma_wait<0>(out1);
        wgmma_wait<0>(out2);
        return release(used);
      }
      barrier_wait(s.full(), s.parity);
      start_rows(x, 0);
      wgmma_wait<1>(out1);  // the operands are free again before dP needs registers
      release(used);
    }
  }
  __device__ __forceinline__ void store(const float (&d)[64], uint32_t* out, const Tile& t) const {
    for (int h = 0; h < 2; ++h) {
      const int y = t.row + group * 64 + row + 8 * h;
      uint32_t* line = out + ((size_t)t.head * args.rows + y) * (kDim / 2) + lane % 4;
      for (int i = 2 * h; i < 64 && y < args.rows; i += 4) line[i / 4 * 4] = pack(d[i], d[i + 1]);
    }
  }
  __device__ __forceinline__ void consume() {
    constexpr bool kSkips = kKeys && kCausal;  // the first 64 queries of a tile see none of its last 64 keys
    for (int index = next_tile(); index >= 0;) {
      const Tile t = tile_of<kKeys>(index, args);
      barrier_wait(s.full(), s.parity);
      if (kSkips && group == 1) {
        release(s.empty());
        s.next();
        barrier_wait(s.full(), s.parity);
      }
      start_rows(x, 0);
      walk(t, t.blocks - (kSkips && group == 1));
      index = next_tile();
      store(out1, args.out[0], t);
      if (kKeys) store(out2, args.out[1], t);
    }
  }
};

template <bool kKeys>
__global__ void __launch_bounds__(kThreads, 1) gradients(const __grid_constant__ Args args) {
  extern __shared__ uint8_t raw[];
  const Shared<kKeys> s{((uint32_t)__cvta_generic_to_shared(raw) + kAlign - 1) & ~(uint32_t)(kAlign - 1)};
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) {
    for (Shared<kKeys> i = s; i.parity == 0; i.next()) barrier_init(i.full(), 1), barrier_init(i.empty(), 4 * kGroups);
    for (int i = 0; i < kGroups; ++i) barrier_init(s.own_full(i), 1), barrier_init(s.own_empty(i), 4);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (warpgroup == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) produce<kKeys>(s, args);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    Consumer<kKeys>{s, args, warpgroup - 1}.consume();
  }
}

// Both numbers of every row, 16 threads per row; rows beyond S get those that make P and dS zero.
__global__ void __launch_bounds__(256) prepare(const __nv_bfloat162* o, const __nv_bfloat162* grad, const float* lse,
                                               float* vectors, int rows, int padded) {
  const int64_t index = (int64_t)blockIdx.x * 16 + threadIdx.x / 16, row = index % padded;
  const int64_t line = index / padded * rows + row, part = threadIdx.x % 16;
  float sum = 0.f;
  for (int i = part; i < kDim / 2 && row < rows; i += 16) {
    const float2 f = __bfloat1622float2(o[line * (kDim / 2) + i]), g = __bfloat1622float2(grad[line * (kDim / 2) + i]);
    sum = fmaf(f.x, g.x, fmaf(f.y, g.y, sum));
  }
  for (int bit = 8; bit > 0; bit /= 2) sum += __shfl_xor_sync(0xffffffff, sum, bit);
  if (part > 0) return;
  vectors += index / 64 * 128 + index % 64;
  vectors[0] = row < rows ? -lse[line] * kLog2e : -INFINITY;
  vectors[64] = -kScale * sum;
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
template <bool kKeys>
void launch(const Args& args, int sms, cudaStream_t stream) {
  check(cudaFuncSetAttribute(gradients<kKeys>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes), "memory");
  gradients<kKeys><<<std::min(sms, args.heads * args.tiles_per_head), kThreads, kSharedBytes, stream>>>(args);
  check(cudaGetLastError(), "gradients launch");
}
}  // namespace

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView dO, tvm::ffi::TensorView LSE, tvm::ffi::TensorView dQ, tvm::ffi::TensorView dK,
         tvm::ffi::TensorView dV) {
  for (const auto& x : {Q, K, V, O, dO, dQ, dK, dV}) {
    TVM_FFI_ICHECK(x.ndim() == 4 && x.size(0) == Q.size(0) && x.size(1) == Q.size(1) && x.size(2) == Q.size(2) &&
                   x.size(3) == kDim) << "all tensors but LSE must be [B, H, S, 128]";
  }
  TVM_FFI_ICHECK(LSE.numel() * kDim == Q.numel()) << "LSE must be [B, H, S]";
  if (Q.numel() == 0) return;
  const int heads = static_cast<int>(Q.size(0) * Q.size(1)), rows = static_cast<int>(Q.size(2));
  const int tiles = (rows + kTile - 1) / kTile, fit = std::clamp(kGroupBytes / (rows * kDim * 2 * 4), 1, heads);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  int sms = 0;
  float* vectors = nullptr;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, Q.device().device_id), "multiprocessor count");
  const uint64_t bytes = sizeof(float) * 2 * heads * tiles * kTile;
  uint64_t threshold = UINT64_MAX;
  cudaMemPool_t pool;  // is told to keep the workspace, which every synchronisation would give back to the system
  check(cudaDeviceGetDefaultMemPool(&pool, Q.device().device_id), "memory pool");
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold), "memory pool");
  check(cudaMallocAsync(&vectors, bytes, stream), "workspace");
  prepare<<<heads * tiles * (kTile / 16), 256, 0, stream>>>(
      static_cast<const __nv_bfloat162*>(O.data_ptr()), static_cast<const __nv_bfloat162*>(dO.data_ptr()),
      static_cast<const float*>(LSE.data_ptr()), vectors, rows, tiles * kTile);
  launch<true>({{tensor_map(K, 64), tensor_map(V, 64)}, {tensor_map(Q, 64), tensor_map(dO, 64)}, vectors,
                {static_cast<uint32_t*>(dK.data_ptr()), static_cast<uint32_t*>(dV.data_ptr())}, rows, heads, tiles,
                fit}, sms, stream);
  launch<false>({{tensor_map(Q, 64), tensor_map(dO, 64)}, {tensor_map(K, 128), tensor_map(V, 128)}, vectors,
                 {static_cast<uint32_t*>(dQ.data_ptr())}, rows, heads, tiles, fit}, sms, stream);
  check(cudaFreeAsync(vectors, stream), "workspace");
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
