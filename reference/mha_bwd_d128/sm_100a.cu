// Gradients of O = softmax(Q K^T / sqrt(128)) V, full attention, for Blackwell (sm_100a). Q, K, V, O and gradients
// are [B, H, S, 128] bf16, LSE is [B, H, S] fp32 (natural logarithm); any S >= 1. No atomic sums: equal bits always.
//
// Three kernels. `prepare` puts -LSE log2(e) and -D / sqrt(128) of every row, D = rowsum(dO O), into a workspace. A CTA
// of `sum_keys` owns 128 keys and walks blocks of 128 queries: with P = exp(Q K^T / sqrt(128) - LSE), dP = dO V^T and
// dS = P (dP - D) / sqrt(128) it sums dV = P^T dO and dK = dS^T Q, and stores dS, rounded to bf16 with its scale. A CTA
// of `sum_queries` owns 128 queries: dQ = dS K. dS is kept for as many heads as fit; for more, these two run again.
//
// Scores are transposed: a lane of tensor memory is a key. P^T and dS^T take the place of S^T and dP^T, in bf16, and
// are operands there. One thread loads (TMA, SW128), one multiplies (tcgen05.mma 128x128x16), two warpgroups have 64
// queries of a block each, a key per thread. They exponentiate S^T under dS^T Q and the next dP^T, and make dS^T under
// P^T dO and the next S^T.
#include <cuda.h>
#include <cuda_bf16.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <cstdint>
#define DEVICE __device__ __forceinline__
#define PTX(text, ...) asm volatile(text ::__VA_ARGS__ : "memory")
#define UNROLL _Pragma("unroll")

namespace {
constexpr bool kCausal = false;
constexpr int kDim = 128, kBlock = 128;  // columns; keys or queries of a CTA, and of a block that it walks
constexpr int kStages = 2, kPairs = 3;   // of Q and of dO; of dS and K
constexpr int kThreads = 384;            // sum_keys: warps 0-7 element-wise; 8 multiplies; 9 loads; 10, 11 idle
constexpr int kThreadsQ = 192;           // sum_queries: warps 0-3 store; 4 multiplies; 5 loads
constexpr float kScale = 0.08838834764831845f, kLog2e = 1.4426950408889634f;  // 1 / sqrt(kDim), 1 / ln(2)
constexpr size_t kRoom = 1 << 30;                                             // for dS of as many heads as fit
constexpr int kBytes = kBlock * kDim * 2, kHalf = kBytes / 2, kBytesVectors = kBlock * 8;  // of a block, a half
constexpr int kOffsetRing = 2 * kBytes, kOffsetVectors = kOffsetRing + 2 * kStages * kBytes;  // ring: behind K and V
constexpr int kOffsetBarriers = kOffsetVectors + kStages * kBytesVectors, kOffsetBarriersQ = kPairs * 2 * kBytes;
constexpr int kAlign = 1024;  // the SW128 pattern follows the address with this period
constexpr int kSharedBytes = kOffsetBarriers + (4 * kStages + 5) * 8 + 4 + kAlign;
constexpr int kSharedBytesQ = kOffsetBarriersQ + (2 * kPairs + 1) * 8 + 4 + kAlign;
static_assert(kSharedBytes <= 232448 && kSharedBytesQ <= 232448, "opt-in shared memory of one CTA");
// D of fp32, A and B of bf16, N / 8 and M / 16; inner dimension across the rows of B, of A (PTX ISA, tcgen05).
constexpr uint32_t kRows = 1u << 4 | 1u << 7 | 1u << 10 | (kBlock / 8) << 17 | (kBlock / 16) << 24;
constexpr uint32_t kAcross = kRows | 1u << 16, kBothAcross = kAcross | 1u << 15;
struct Args {
  CUtensorMap own[2], walked[2];  // K, V; Q, dO
  uint32_t *sums[2], *dq;         // dV, dK
  float* vectors;                 // [heads, blocks, 2, 128]
  uint8_t* pieces;                // of dS^T: [heads of a launch, blocks of queries, blocks of keys, 2, 128, 64]
  int rows, blocks, head;         // head: the first one of a launch
  __device__ uint8_t* piece(int queries, int keys) const {
    return pieces + (((size_t)(blockIdx.x / blocks) * blocks + queries) * blocks + keys) * kBytes;
  }
};
DEVICE bool elected() {
  uint32_t one;
  asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}" : "=r"(one));
  return one != 0;
}
DEVICE void init(uint32_t b, uint32_t count) { PTX("mbarrier.init.shared.b64 [%0], %1;", "r"(b), "r"(count)); }
DEVICE void expect(uint32_t b, uint32_t n) { PTX("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;", "r"(b), "r"(n)); }
DEVICE void wait(uint32_t b, uint32_t parity) {
  PTX("{.reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra again;}", "r"(b), "r"(parity));
}
DEVICE void arrive(uint32_t b) {  // once for a warp, behind what all of its lanes did
  __syncwarp();
  if (threadIdx.x % 32 == 0) PTX("mbarrier.arrive.shared.b64 _, [%0];", "r"(b));
}
// Both 64-column halves of 128 rows of one head, the second half behind the first; rows beyond the head read as zero.
DEVICE void tma_load(uint32_t dst, const CUtensorMap* map, uint32_t barrier, int row, int head) {
  PTX("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %3, %5}], "
      "[%2];", "r"(dst), "l"(map), "r"(barrier), "r"(0), "r"(row), "r"(head));
}
DEVICE void bulk_load(uint32_t dst, const void* src, uint32_t barrier, uint32_t bytes) {
  PTX("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];", "r"(dst), "l"(src),
      "r"(bytes), "r"(barrier));
}
DEVICE void fence_after() { PTX("tcgen05.fence::after_thread_sync;"); }
DEVICE void meet() {
  __syncwarp();
  PTX("tcgen05.fence::before_thread_sync;");
  __syncthreads(), fence_after();
}
// Columns of tensor memory, got by one warp for all.
template <int kCount> DEVICE uint32_t allocate(uint32_t at, bool mine) {
  if (mine) PTX("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;\n\t"
                "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;", "r"(at), "n"(kCount));
  meet();
  return *static_cast<const uint32_t*>(__cvta_shared_to_generic(at));
}
template <int kCount> DEVICE void release(uint32_t columns, bool mine) {
  meet();
  if (mine) PTX("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;", "r"(columns), "n"(kCount));
}
// Shared-memory operands in SW128 (PTX ISA, tcgen05 matrix descriptor): groups of 8 rows lie 1024 bytes apart. With the
// product's inner dimension along the row the other stride is unused; across the rows it leads to the second half.
DEVICE uint64_t operand(uint32_t address, uint32_t stride = 16) {
  return (uint64_t)((address & 0x3FFFF) >> 4) | (uint64_t)(stride >> 4) << 16 | 64ull << 32 | 1ull << 46 | 2ull << 61;
}
#define MMA(a) "{.reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], " a ", %2, %3, p;}"
DEVICE void mma(uint32_t d, uint64_t a, uint64_t b, uint32_t kind, bool more) {
  PTX(MMA("%1"), "r"(d), "l"(a), "l"(b), "r"(kind), "r"((uint32_t)more));
}
DEVICE void mma(uint32_t d, uint32_t a, uint64_t b, bool more) {  // a: in tensor memory
  PTX(MMA("[%1]"), "r"(d), "r"(a), "l"(b), "r"(kAcross), "r"((uint32_t)more));
}
DEVICE void commit(uint32_t b) {  // arrives when everything that this thread multiplied so far is done
  PTX("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];", "r"(b));
}
#define EACH8(c, i) c(x[i]), c(x[i + 1]), c(x[i + 2]), c(x[i + 3]), c(x[i + 4]), c(x[i + 5]), c(x[i + 6]), c(x[i + 7])
#define EACH32(c, i) EACH8(c, i), EACH8(c, i + 8), EACH8(c, i + 16), EACH8(c, i + 24)
#define REGS32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
               "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGS64 REGS32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
               "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
// 64 columns of the lane's row; the wait belongs to the statement, so that nothing uses a register before it.
DEVICE void load(uint32_t (&x)[64], uint32_t at) {
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x64.b32 {" REGS64 "}, [%64];\n\ttcgen05.wait::ld.sync.aligned;"
               : EACH32("=r", 0), EACH32("=r", 32) : "r"(at) : "memory");
}
DEVICE void store(uint32_t at, const uint32_t (&x)[32]) {
  PTX("tcgen05.st.sync.aligned.32x32b.x32.b32 [%32], {" REGS32 "};\n\ttcgen05.wait::st.sync.aligned;\n\t"
      "tcgen05.fence::before_thread_sync;", EACH32("r", 0), "r"(at));
}
DEVICE uint32_t pack(float2 x) {
  const __nv_bfloat162 pair = __float22bfloat162_rn(x);
  return reinterpret_cast<const uint32_t&>(pair);
}
DEVICE float exp2_approx(float x) { asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x)); return x; }
DEVICE float2 pair_of(const uint32_t* x) { return {__uint_as_float(x[0]), __uint_as_float(x[1])}; }
DEVICE uint32_t shared_base() {
  extern __shared__ uint8_t raw[];
  return ((uint32_t)__cvta_generic_to_shared(raw) + kAlign - 1) & ~(uint32_t)(kAlign - 1);
}
DEVICE void store_global(void* to, const uint32_t* x) {  // a sector
  PTX("st.global.v8.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};", "l"(to), EACH8("r", 0));
}
// Rounds the lane's 128 columns to bf16 and writes them.
DEVICE void store_row(uint32_t* to, uint32_t at, bool exists) {
  for (int half = 0; half < 2; ++half) {
    uint32_t x[64];
    load(x, at + half * 64);
    UNROLL for (int i = 0; i < 32; ++i) x[i] = pack(pair_of(x + 2 * i));
    UNROLL for (int i = 0; i < 32 && exists; i += 8) store_global(to + half * 32 + i, x + i);
  }
}
struct Shared {
  uint32_t base;
  DEVICE uint32_t own(int which) const { return base + which * kBytes; }  // K, V
  DEVICE uint32_t slot(int which, int i) const { return which * kStages + i % kStages; }
  DEVICE uint32_t block(int which, int i) const { return base + kOffsetRing + slot(which, i) * kBytes; }
  DEVICE uint32_t vectors(int i) const { return base + kOffsetVectors + i % kStages * kBytesVectors; }
  DEVICE uint32_t full(int which, int i) const { return base + kOffsetBarriers + slot(which, i) * 8; }
  DEVICE uint32_t empty(int which, int i) const { return full(which, i) + 2 * kStages * 8; }
  DEVICE uint32_t own_full() const { return full(0, 0) + 4 * kStages * 8; }
  DEVICE uint32_t done(int which, bool element_wise) const { return own_full() + 8 + (which * 2 + element_wise) * 8; }
  DEVICE uint32_t columns() const { return own_full() + 5 * 8; }
};
// Places in tensor memory: 0 S^T, then P^T; 1 dP^T, then dS^T; 2 dV; 3 dK. A group's 64 queries shrink to 32 columns.
DEVICE uint32_t place(uint32_t columns, int which) { return columns + which * kBlock; }
DEVICE uint32_t parity(int i) { return i / kStages & 1; }
struct Tile { int head, own, first, blocks; };  // its keys; the queries that it walks
DEVICE Tile tile_of(const Args& args) {
  const int own = blockIdx.x % args.blocks, first = kCausal ? own : 0;
  return {args.head + (int)blockIdx.x / args.blocks, own, first, args.blocks - first};
}
DEVICE void load_keys(const Shared& s, const Args& args, const Tile& t) {
  expect(s.own_full(), 2 * kBytes);
  for (int i = 0; i < 2; ++i) tma_load(s.own(i), &args.own[i], s.own_full(), t.own * kBlock, t.head);
  for (int i = 0; i < t.blocks; ++i) {
    const int block = t.first + i;
    for (int which = 0; which < 2; ++which) {  // the vectors come and go with Q, which is needed longest
      wait(s.empty(which, i), parity(i) ^ 1), expect(s.full(which, i), kBytes + (which ? 0 : kBytesVectors));
      tma_load(s.block(which, i), &args.walked[which], s.full(which, i), block * kBlock, t.head);
    }
    const float* vectors = args.vectors + ((size_t)t.head * args.blocks + block) * 2 * kBlock;
    bulk_load(s.vectors(i), vectors, s.full(0, i), kBytesVectors);
  }
}
// The thread that multiplies. What a product reads from tensor memory may be overwritten only when that is over.
struct Products {
  const Shared s;
  const uint32_t columns;
  DEVICE void transposed(int which, int i) const {  // S^T = K Q^T or dP^T = V dO^T
    wait(s.full(which, i), parity(i)), fence_after();
    for (int j = 0; j < kDim / 16; ++j) {
      const int at = j / 4 * kHalf + j % 4 * 32;
      mma(place(columns, which), operand(s.own(which) + at), operand(s.block(which, i) + at), kRows, j > 0);
    }
    commit(s.done(which, false));
  }
  DEVICE void sum(int which, int i) const {  // dV += P^T dO or dK += dS^T Q
    wait(s.done(which, true), i & 1), fence_after();
    for (int j = 0; j < kBlock / 16; ++j)
      mma(place(columns, 2 + which), place(columns, which) + j / 4 * 64 + j % 4 * 8,
          operand(s.block(1 - which, i) + j * 2048, kHalf), i + j > 0);
    commit(s.empty(1 - which, i));
  }
  DEVICE void run(int blocks) const {
    wait(s.own_full(), 0), transposed(0, 0), transposed(1, 0);
    for (int i = 0; i < blocks; ++i) {
      for (int which = 0; which < 2; ++which) {
        sum(which, i);
        if (i + 1 < blocks) wait(s.empty(1 - which, i), parity(i)), transposed(which, i + 1);
      }
    }
  }
};
// One of two warpgroups; a thread has one key and 64 queries of each block.
struct ElementWise {
  const Shared s;
  const Args& args;
  const uint32_t columns;
  const int group, row = threadIdx.x % 128;
  float2 p[32];
  // S^T or dP^T into x, and of each query -LSE log2(e) or -D / sqrt(128) into n.
  DEVICE void take(uint32_t (&x)[64], float2 (&n)[32], int i, int which) const {
    wait(s.full(0, i), parity(i)), wait(s.done(which, false), i & 1), fence_after();
    load(x, place(columns, which) + group * 64);
    const void* from = __cvta_shared_to_generic(s.vectors(i) + (which * kBlock + group * 64) * 4);
    UNROLL for (int j = 0; j < 16; ++j) reinterpret_cast<float4*>(n)[j] = static_cast<const float4*>(from)[j];
  }
  DEVICE void exponentiate(int i, bool diagonal) {
    uint32_t x[64], r[32];
    alignas(16) float2 n[32];
    take(x, n, i, 0);
    UNROLL for (int j = 0; j < 64; j += 2) {
      float2 e = __ffma2_rn(pair_of(x + j), {kScale * kLog2e, kScale * kLog2e}, n[j / 2]);
      e = {exp2_approx(e.x), exp2_approx(e.y)};
      if (diagonal) e = {group * 64 + j < row ? 0.f : e.x, group * 64 + j + 1 < row ? 0.f : e.y};
      p[j / 2] = e, r[j / 2] = pack(e);
    }
    store(place(columns, 0) + group * 64, r), arrive(s.done(0, true));
  }
  DEVICE void differentiate(int i, uint32_t (&r)[32], bool exists) const {
    uint32_t x[64];
    alignas(16) float2 n[32];
    take(x, n, i, 1);
    UNROLL for (int j = 0; j < 32; ++j) {
      const float2 d = __ffma2_rn(pair_of(x + 2 * j), {kScale, kScale}, n[j]);
      r[j] = exists ? pack(__fmul2_rn(p[j], d)) : 0;
    }
    store(place(columns, 1) + group * 64, r), arrive(s.done(1, true));
  }
  // dS^T to memory as shared memory will hold it: 16-byte chunk c of a row at c ^ row % 8, so chunks stay in pairs.
  DEVICE void send(uint8_t* piece, const uint32_t (&r)[32]) const {
    UNROLL for (int i = 0; i < 4; ++i) {
      uint32_t x[8];
      UNROLL for (int j = 0; j < 4; ++j) {
        x[j] = row % 2 ? r[8 * i + j + 4] : r[8 * i + j];
        x[j + 4] = row % 2 ? r[8 * i + j] : r[8 * i + j + 4];
      }
      store_global(piece + group * kHalf + row * 128 + (i ^ row % 8 / 2) * 32, x);
    }
  }
  DEVICE void run(const Tile& t) {
    const int last = t.blocks - 1, key = t.own * kBlock + row;
    for (int i = 0; i <= last; ++i) {
      uint32_t r[32];
      exponentiate(i, kCausal && i == 0);
      differentiate(i, r, key < args.rows);
      send(args.piece(t.first + i, t.own), r);
    }
    wait(s.empty(0, last), parity(last)), fence_after();
    uint32_t* to = args.sums[group] + ((size_t)t.head * args.rows + key) * (kDim / 2);
    store_row(to, place(columns, 2 + group), key < args.rows);
  }
};
__global__ void __launch_bounds__(kThreads, 1) sum_keys(const __grid_constant__ Args args) {
  const Shared s{shared_base()};
  const Tile t = tile_of(args);
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);  // uniform registers for what depends on it
  if (warp == 9 && elected()) {
    for (int i = 0; i < 4 * kStages + 1; ++i) init(s.full(0, 0) + i * 8, 1);
    for (int i = 0; i < 4; ++i) init(s.done(i / 2, i % 2), i % 2 ? 8 : 1);
    PTX("fence.mbarrier_init.release.cluster;");
  }
  const uint32_t columns = allocate<512>(s.columns(), warp == 8);
  if (warp < 8) ElementWise{s, args, columns + ((uint32_t)(warp % 4 * 32) << 16), warp / 4}.run(t);
  if (warp == 8 && elected()) Products{s, columns}.run(t.blocks);
  if (warp == 9 && elected()) load_keys(s, args, t);
  release<512>(columns, warp == 8);
}
// Pairs of a piece of dS^T and a block of K, by turns in shared memory.
struct Pairs {
  uint32_t base;
  DEVICE uint32_t piece(int i) const { return base + i % kPairs * 2 * kBytes; }
  DEVICE uint32_t keys(int i) const { return piece(i) + kBytes; }
  DEVICE uint32_t full(int i) const { return base + kOffsetBarriersQ + i % kPairs * 8; }
  DEVICE uint32_t empty(int i) const { return full(i) + kPairs * 8; }
  DEVICE uint32_t done() const { return full(0) + 2 * kPairs * 8; }
  DEVICE uint32_t columns() const { return done() + 8; }
  DEVICE void load(const Args& args, int own, int head, int blocks) const {
    for (int i = 0; i < blocks; ++i) {
      wait(empty(i), (i / kPairs & 1) ^ 1), expect(full(i), 2 * kBytes);
      bulk_load(piece(i), args.piece(own, i), full(i), kBytes);
      tma_load(keys(i), &args.own[0], full(i), i * kBlock, head);
    }
  }
  DEVICE void multiply(uint32_t columns, int blocks) const {
    for (int i = 0; i < blocks; ++i) {
      wait(full(i), i / kPairs & 1);
      for (int j = 0; j < kBlock; j += 16)
        mma(columns, operand(piece(i) + j * 128, kHalf), operand(keys(i) + j * 128, kHalf), kBothAcross, i + j > 0);
      commit(empty(i));
    }
    commit(done());
  }
};
__global__ void __launch_bounds__(kThreadsQ, 1) sum_queries(const __grid_constant__ Args args) {
  const Pairs s{shared_base()};
  const int own = args.blocks - 1 - blockIdx.x % args.blocks, head = args.head + blockIdx.x / args.blocks;
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0), blocks = kCausal ? own + 1 : args.blocks;
  if (warp == 5 && elected()) {
    for (int i = 0; i < 2 * kPairs + 1; ++i) init(s.full(0) + i * 8, 1);
    PTX("fence.mbarrier_init.release.cluster;");
  }
  const uint32_t columns = allocate<128>(s.columns(), warp == 4);
  if (warp == 5 && elected()) s.load(args, own, head, blocks);
  if (warp == 4 && elected()) s.multiply(columns, blocks);
  if (warp < 4) {
    wait(s.done(), 0), fence_after();
    const int query = own * kBlock + threadIdx.x;
    uint32_t* to = args.dq + ((size_t)head * args.rows + query) * (kDim / 2);
    store_row(to, columns + ((uint32_t)(warp * 32) << 16), query < args.rows);
  }
  release<128>(columns, warp == 4);
}
struct alignas(16) Eight { __nv_bfloat162 pair[4]; };
// Both numbers of every row, 16 threads per row; rows beyond S get those that make P and dS zero.
__global__ void __launch_bounds__(256) prepare(const Eight* o, const Eight* grad, const float* lse, Args args) {
  const int64_t index = (int64_t)blockIdx.x * 16 + threadIdx.x / 16, padded = args.blocks * kBlock;
  const int64_t row = index % padded, line = index / padded * args.rows + row, part = threadIdx.x % 16;
  Eight f{}, g{};
  if (row < args.rows) f = o[line * 16 + part], g = grad[line * 16 + part];
  float sum = 0.f;
  for (int i = 0; i < 4; ++i) {
    const float2 u = __bfloat1622float2(f.pair[i]), v = __bfloat1622float2(g.pair[i]);
    sum = fmaf(u.x, v.x, fmaf(u.y, v.y, sum));
  }
  for (int bit = 8; bit > 0; bit /= 2) sum += __shfl_xor_sync(0xffffffff, sum, bit);
  if (part > 0) return;
  float* to = args.vectors + index / kBlock * 2 * kBlock + index % kBlock;
  to[0] = row < args.rows ? -lse[line] * kLog2e : -INFINITY, to[kBlock] = -kScale * sum;
}
void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorString(error);
}
// [heads, rows, 128] as (64 columns, row, half, head), read in SW128 boxes of both halves of 128 rows.
CUtensorMap tensor_map(const tvm::ffi::TensorView& x) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found;
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found), "driver");
  TVM_FFI_ICHECK(entry != nullptr && found == cudaDriverEntryPointSuccess) << "the driver cannot encode tensor maps";
  CUtensorMap map;
  const cuuint64_t rows = x.size(2), dims[] = {kDim / 2, rows, 2, (cuuint64_t)(x.size(0) * x.size(1))};
  const cuuint64_t strides[] = {kDim * 2, kDim, rows * kDim * 2};
  const cuuint32_t box[] = {kDim / 2, kBlock, 2, 1}, steps[] = {1, 1, 1, 1};
  const CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, x.data_ptr(), dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TVM_FFI_ICHECK(result == CUDA_SUCCESS) << "cuTensorMapEncodeTiled failed with code " << static_cast<int>(result);
  return map;
}
}  // namespace
void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView dO, tvm::ffi::TensorView LSE, tvm::ffi::TensorView dQ, tvm::ffi::TensorView dK,
         tvm::ffi::TensorView dV) {
  for (const auto& x : {Q, K, V, O, dO, dQ, dK, dV}) {
    TVM_FFI_ICHECK(x.ndim() == 4 && x.size(1) == Q.size(1) && x.size(2) == Q.size(2) && x.size(3) == kDim &&
                   x.numel() == Q.numel()) << "all tensors but LSE must be [B, H, S, 128]";
  }
  TVM_FFI_ICHECK(LSE.numel() * kDim == Q.numel()) << "LSE must be [B, H, S]";
  if (Q.numel() == 0) return;
  const int rows = (int)Q.size(2), heads = (int)(Q.size(0) * Q.size(1)), blocks = (rows + kBlock - 1) / kBlock;
  Args args{{tensor_map(K), tensor_map(V)}, {tensor_map(Q), tensor_map(dO)},
            {static_cast<uint32_t*>(dV.data_ptr()), static_cast<uint32_t*>(dK.data_ptr())},
            static_cast<uint32_t*>(dQ.data_ptr()), nullptr, nullptr, rows, blocks, 0};
  const size_t room = (size_t)blocks * blocks * kBytes, numbers = (size_t)heads * blocks * 2 * kBlock;
  const int together = static_cast<int>(std::clamp<size_t>(kRoom / room, 1, heads));
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  uint64_t threshold = UINT64_MAX;
  cudaMemPool_t pool;  // is told to keep the workspace, which every synchronisation would give back to the system
  check(cudaDeviceGetDefaultMemPool(&pool, Q.device().device_id), "memory pool");
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold), "memory pool");
  check(cudaMallocAsync(&args.pieces, together * room + numbers * sizeof(float), stream), "workspace");
  args.vectors = reinterpret_cast<float*>(args.pieces + together * room);
  prepare<<<heads * blocks * kBlock / 16, 256, 0, stream>>>(static_cast<const Eight*>(O.data_ptr()),
      static_cast<const Eight*>(dO.data_ptr()), static_cast<const float*>(LSE.data_ptr()), args);
  check(cudaFuncSetAttribute(sum_keys, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes), "shared memory");
  check(cudaFuncSetAttribute(sum_queries, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytesQ), "shared memory");
  for (; args.head < heads; args.head += together) {
    const int tiles = std::min(together, heads - args.head) * blocks;
    sum_keys<<<tiles, kThreads, kSharedBytes, stream>>>(args);
    sum_queries<<<tiles, kThreadsQ, kSharedBytesQ, stream>>>(args);
  }
  check(cudaGetLastError(), "launch");
  check(cudaFreeAsync(args.pieces, stream), "workspace");
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
