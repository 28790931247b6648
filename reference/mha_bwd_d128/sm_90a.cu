// Gradients of O = softmax(Q K^T / sqrt(128)) V, full attention, for Hopper (sm_90a). Q, K, V, O, dO, dQ, dK, dV are
// [B, H, S, 128] bf16, LSE is [B, H, S] fp32 (natural logarithm); any S >= 1. No atomic sums: equal bits on every run.
//
// `prepare` puts -LSE log2(e) and -D / sqrt(128) of every row, D = rowsum(dO O), into a workspace. `gradients` draws
// tiles of two kinds from a counter. One of 128 keys walks blocks of 64 queries: with P = exp(Q K^T / sqrt(128) - LSE),
// dP = dO V^T and dS = P (dP - D) / sqrt(128) it sums dV = P^T dO and dK = dS^T Q, and stores dS, rounded to bf16 with
// its scale as cuDNN rounds it. One of 256 queries multiplies that: dQ = dS K (arXiv 2307.08691). So each of the five
// products is computed once, and the memory traffic of dS lies under the products of other CTAs. dS of a head is kept
// in one of `slots`, in turn. The tiles of queries of a head are drawn `lag` < `slots` heads after its tiles of keys;
// they wait until those are done, and tiles of keys until the slot's last head is done. Nobody waits for a tile drawn
// later, and a CTA finishes what it drew before: so waiting ends, however few CTAs there are.
//
// Persistent CTAs: two consumer warpgroups, fed by one producer thread (TMA and bulk copies, SW128). Scores are
// transposed, so P and dS go from the accumulators straight into the next products. Element-wise work lies under
// products: scores, dP | exp | P^T dO | dS | dS^T Q, next scores. dS lies in memory as shared memory will hold it.
#include <cuda.h>
#include <cuda_bf16.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <cstdint>
#define DEVICE __device__ __forceinline__
#define PTX(text, ...) asm volatile(text ::__VA_ARGS__ : "memory")

namespace {
constexpr bool kCausal = false;
constexpr int kDim = 128, kBlock = 64;            // columns; queries or keys that are walked at a time
constexpr int kGroups = 2, kTile = kGroups * 64;  // consumer warpgroups; keys of a tile, 64 for each
constexpr int kPieces = 4, kStages = 4;           // blocks in a tile of queries, two for each warpgroup
constexpr int kThreads = 128 * (1 + kGroups);     // producer warpgroup first
constexpr float kScale = 0.08838834764831845f, kLog2e = 1.4426950408889634f;  // 1 / sqrt(kDim), 1 / ln(2)
constexpr size_t kRoom = 1 << 30;                                             // for dS of as many heads as fit
constexpr int kBytes = 64 * kDim * 2, kHalf = kBytes / 2;  // 64 rows of an operand; 64 of its columns, a piece of dS
constexpr int kBytesVectors = 2 * kBlock * 4, kBytesPieces = kPieces * kHalf;  // both numbers of 64 rows; dS of a stage
constexpr int kOffsetRing = 2 * kGroups * kBytes, kOffsetPiece = kOffsetRing + kStages * 2 * kBytes;
constexpr int kOffsetVectors = kOffsetPiece + kGroups * kHalf, kOffsetTile = kOffsetVectors + kStages * kBytesVectors;
constexpr int kOffsetBarriers = kOffsetTile + 8, kAlign = 1024;  // SW128 follows the address with this period
constexpr int kSharedBytes = kOffsetBarriers + (2 * kStages + 2) * 8 + kAlign;
static_assert(kSharedBytes <= 232448 && kStages * (kBytesPieces + kBytes) <= kOffsetPiece, "shared memory of one CTA");
struct Args {
  CUtensorMap q, k, v, grad;  // boxes of 64 rows
  float* vectors;             // [heads, blocks, 2, 64]
  uint8_t* pieces;            // of dS: [slots, tiles of queries, blocks of keys, kPieces, 64, 64]
  unsigned* counters;         // tiles drawn; warpgroups that are done with their part of a head's [queries, keys]
  uint32_t *dq, *dk, *dv;
  int rows, heads, slots, lag;
  __host__ __device__ int blocks() const { return (rows + kTile - 1) / kTile * 2; }  // of 64 rows, in a head
  __host__ __device__ int tiles(bool keys) const { return keys ? blocks() / 2 : (blocks() + kPieces - 1) / kPieces; }
  __host__ __device__ int tickets() const { return (heads + lag) * (tiles(true) + tiles(false)); }
  __device__ unsigned* done(bool keys, int head) const { return counters + 1 + 2 * head + keys; }
  __device__ uint8_t* piece(int head, int queries, int keys) const {
    const size_t tile = (size_t)(head % slots) * tiles(false) + queries / kPieces;
    return pieces + ((tile * blocks() + keys) * kPieces + queries % kPieces) * kHalf;
  }
};
DEVICE void init(uint32_t b, uint32_t count) { PTX("mbarrier.init.shared.b64 [%0], %1;", "r"(b), "r"(count)); }
DEVICE void expect(uint32_t b, uint32_t n) { PTX("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;", "r"(b), "r"(n)); }
DEVICE void release(uint32_t b) { if (threadIdx.x % 32 == 0) PTX("mbarrier.arrive.shared.b64 _, [%0];", "r"(b)); }
DEVICE void wait(uint32_t b, uint32_t parity) {
  PTX("{.reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra again;}", "r"(b), "r"(parity));
}
// Both 64-column halves of 64 rows of one head, the second half behind the first; rows beyond the head read as zero.
DEVICE void tma_load(uint32_t dst, const CUtensorMap* map, uint32_t barrier, int row, int head) {
  PTX("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %3, %5}], "
      "[%2];", "r"(dst), "l"(map), "r"(barrier), "r"(0), "r"(row), "r"(head));
}
DEVICE void bulk_load(uint32_t dst, const void* src, uint32_t barrier, uint32_t bytes) {
  PTX("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];", "r"(dst), "l"(src),
      "r"(bytes), "r"(barrier));
}
DEVICE void await(const unsigned* count, unsigned target) {
  unsigned seen = 0;
  while (seen < target) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(count) : "memory");
  PTX("fence.proxy.async;");  // bulk copies follow
}
// Shared-memory operands in SW128 (PTX ISA, wgmma matrix descriptor): groups of 8 rows lie 1024 bytes apart. With the
// product's inner dimension along the row the other stride is unused; across the rows it leads to the second half.
DEVICE uint64_t operand(uint32_t address) {
  return (uint64_t)((address & 0x3FFFF) >> 4) | (uint64_t)(kHalf >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}
#define ACC8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
                "+f"(d[i + 6]), "+f"(d[i + 7])
#define ACC32 ACC8(0), ACC8(8), ACC8(16), ACC8(24)
#define ACC64 ACC32, ACC8(32), ACC8(40), ACC8(48), ACC8(56)
#define REGS32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
               "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGS64 REGS32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA(shape, flag, operands) "{.reg .pred p; setp.ne.b32 p, %" #flag ", 0; " \
  "wgmma.mma_async.sync.aligned." #shape "k16.f32.bf16.bf16 {" operands ";}"
// d (fp32) = a b of 16 columns of a, plus the old d if `more`. First 64 x 64, b transposed; then 64 x 128, a anywhere.
DEVICE void wgmma_rows(float (&d)[32], uint64_t a, uint64_t b, int step, int more) {
  const int at = (step / 4 * kHalf + step % 4 * 32) >> 4;
  asm volatile(WGMMA(m64n64, 34, REGS32 "}, %32, %33, p, 1, 1, 0, 0") : ACC32 : "l"(a + at), "l"(b + at), "r"(more));
}
DEVICE void wgmma_sum(float (&d)[64], const uint32_t* a, uint64_t b, int step, int more) {
  asm volatile(WGMMA(m64n128, 69, REGS64 "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1") : ACC64 : "r"(a[4 * step]),
      "r"(a[4 * step + 1]), "r"(a[4 * step + 2]), "r"(a[4 * step + 3]), "l"(b + (step * 2048 >> 4)), "r"(more));
}
DEVICE void wgmma_sum(float (&d)[64], uint64_t a, uint64_t b, int step, int more) {
  asm volatile(WGMMA(m64n128, 66, REGS64 "}, %64, %65, p, 1, 1, 0, 1") : ACC64
               : "l"(a + (step * 32 >> 4)), "l"(b + (step * 2048 >> 4)), "r"(more));
}
// Waits until at most kPending groups of products run, and keeps the compiler from using d before.
template <int kPending, int kSize> DEVICE void wgmma_wait(float (&d)[kSize]) {
  PTX("wgmma.wait_group.sync.aligned %0;", "n"(kPending));
  for (int i = 0; i < kSize; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
DEVICE uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}
struct Shared {  // a stage of tiles of queries is dS and then K; that of tiles of keys lies behind their own rows
  uint32_t base, stage = 0, parity = 0;
  DEVICE uint32_t own(int group, int which) const { return base + (group * 2 + which) * kBytes; }  // K, V
  DEVICE uint32_t block(int which) const { return base + kOffsetRing + (stage * 2 + which) * kBytes; }  // Q, dO
  DEVICE uint32_t pieces(int i) const { return base + stage * (kBytesPieces + kBytes) + i * kHalf; }
  DEVICE uint32_t piece(int group) const { return base + kOffsetPiece + group * kHalf; }  // on its way to memory
  DEVICE uint32_t vectors() const { return base + kOffsetVectors + stage * kBytesVectors; }
  DEVICE uint32_t tile() const { return base + kOffsetTile; }
  DEVICE uint32_t own_full() const { return base + kOffsetBarriers; }
  DEVICE uint32_t own_empty() const { return own_full() + 8; }
  DEVICE uint32_t full() const { return own_full() + 16 + stage * 16; }
  DEVICE uint32_t empty() const { return full() + 8; }
  DEVICE void next() { parity ^= stage == kStages - 1, stage = (stage + 1) % kStages; }
};
struct Tile { bool keys; int head, row, first, blocks; };  // first: of the blocks that it walks
// By turns a head's tiles of keys and those of queries of `lag` heads before; the longest of a head first.
DEVICE Tile tile_of(int ticket, const Args& args) {
  const int keys = args.tiles(true), both = keys + args.tiles(false), blocks = args.blocks();
  const int step = ticket / both, rest = ticket % both, tile = both - 1 - rest, first = kCausal ? 2 * rest : 0;
  if (rest < keys) return {true, step, rest * kTile, first, blocks - first};
  return {false, step - args.lag, tile * kPieces * kBlock, 0, kCausal ? min(kPieces * (tile + 1), blocks) : blocks};
}
DEVICE void produce(Shared s, const Args& args) {
  bool keys = true;
  for (uint32_t parity = 1;;) {
    const int ticket = atomicAdd(args.counters, 1), end = args.tickets();
    const Tile t = tile_of(ticket, args);
    if (ticket < end && (t.head < 0 || t.head >= args.heads)) continue;  // the first and the last have one kind only
    Shared last = s;  // the kinds use shared memory in different ways
    for (int i = 0; i < kStages && t.keys != keys; ++i, last.next()) wait(last.empty(), last.parity ^ 1);
    keys = t.keys;
    wait(s.own_empty(), parity), parity ^= 1;
    PTX("st.shared.b32 [%0], %1;", "r"(s.tile()), "r"(ticket));
    if (ticket >= end) return expect(s.own_full(), 0);
    if (!keys) await(args.done(true, t.head), args.blocks());
    if (keys && t.head >= args.slots) await(args.done(false, t.head - args.slots), 2 * args.tiles(false));
    expect(s.own_full(), keys ? 2 * kGroups * kBytes : 0);
#pragma unroll 1  // this thread has few registers
    for (int group = 0; group < kGroups && keys; ++group) {
      tma_load(s.own(group, 0), &args.k, s.own_full(), t.row + group * 64, t.head);
      tma_load(s.own(group, 1), &args.v, s.own_full(), t.row + group * 64, t.head);
    }
    const int row = t.row / kBlock;
    for (int block = t.first; block < t.first + t.blocks; ++block, s.next()) {
      wait(s.empty(), s.parity ^ 1);
      if (keys) {
        expect(s.full(), 2 * kBytes + kBytesVectors);
        tma_load(s.block(0), &args.q, s.full(), block * kBlock, t.head);
        tma_load(s.block(1), &args.grad, s.full(), block * kBlock, t.head);
        bulk_load(s.vectors(), args.vectors + ((size_t)t.head * args.blocks() + block) * 128, s.full(), kBytesVectors);
      } else {  // K and the pieces of dS of those queries that see one of these keys and exist
        const int from = kCausal ? max(row, block) : row, bytes = (min(row + kPieces, args.blocks()) - from) * kHalf;
        expect(s.full(), bytes + kBytes);
        bulk_load(s.pieces(from - row), args.piece(t.head, from, block), s.full(), bytes);
        tma_load(s.pieces(kPieces), &args.k, s.full(), block * kBlock, t.head);
      }
    }
  }
}
// One consumer warpgroup. A thread holds two rows, 8 apart, each shared with three other threads.
struct Consumer {
  Shared s;
  const Args& args;
  const int group, thread = threadIdx.x % 128, lane = threadIdx.x % 32;
  const int row = thread / 32 * 16 + lane / 4;  // of the warpgroup's 64, the first of the two
  float x[32], y[32], out1[64], out2[64];       // scores, then P; dP; dK, dV or dQ of 64 queries each
  DEVICE void meet() const { PTX("bar.sync %0, 128;", "r"(1 + group)); }
  // d = own rows times the walked block, of the first (scores) or the second (dP) operands.
  DEVICE void start_rows(float (&d)[32], int which) {
    const uint64_t a = operand(s.own(group, which)), b = operand(s.block(which));
    PTX("wgmma.fence.sync.aligned;");
    for (int i = 0; i < kDim / 16; ++i) wgmma_rows(d, a, b, i, i > 0);
    PTX("wgmma.commit_group.sync.aligned;");
  }
  // d (+)= a times the walked block at b: dK, dV or, with a piece of dS in shared memory, dQ.
  template <class Operand> DEVICE void start_sum(float (&d)[64], Operand a, uint32_t b, bool more) {
    PTX("wgmma.fence.sync.aligned;");
    for (int i = 0; i < kBlock / 16; ++i) wgmma_sum(d, a, operand(b), i, more || i > 0);
    PTX("wgmma.commit_group.sync.aligned;");
  }
  // The two numbers (0: -LSE log2(e), 1: -D / sqrt(128)) that belong to elements 4 j ... 4 j + 3 of x and y.
  DEVICE float2 numbers(int which, int j) const {
    return *static_cast<const float2*>(__cvta_shared_to_generic(s.vectors() + which * 256 + j * 32 + lane % 4 * 8));
  }
  // P into x and, as an operand, p; then dS as an operand.
  DEVICE void exponentiate(uint32_t (&p)[16]) {
    for (int j = 0; j < 8; ++j) {
      const float2 n = numbers(0, j);
      float* d = x + 4 * j;
      for (int i = 0; i < 4; ++i)
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(d[i]) : "f"(fmaf(d[i], kScale * kLog2e, i % 2 ? n.y : n.x)));
      for (int i = 0; i < 2; ++i) p[2 * j + i] = pack(d[2 * i], d[2 * i + 1]);
    }
  }
  DEVICE void differentiate(uint32_t (&q)[16], int keys) const {
    for (int j = 0; j < 8; ++j) {
      const float2 n = numbers(1, j);
      float f[4];
      for (int i = 0; i < 4; ++i) f[i] = x[4 * j + i] * fmaf(y[4 * j + i], kScale, i % 2 ? n.y : n.x);
      for (int i = 0; i < 2; ++i) q[2 * j + i] = pack(f[2 * i], f[2 * i + 1]);
    }
    for (int j = 0; j < 16 && keys < 64; ++j) q[j] = row + j % 2 * 8 < keys ? q[j] : 0;  // beyond S
  }
  // dS to shared memory: a line holds the warpgroup's 64 keys of one query, in SW128.
  DEVICE void share(const uint32_t (&q)[16]) const {
    for (int j = 0; j < 4; ++j) {  // 16 queries; lanes 0-7, 8-15, ... give the lines of one 8 x 8 matrix each
      const uint32_t chunk = thread / 32 * 2 + lane / 8 % 2, query = j * 16 + lane / 16 * 8 + lane % 8;
      PTX("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};",
          "r"(s.piece(group) + query * 128 + (chunk ^ lane % 8) * 16), "r"(q[4 * j]), "r"(q[4 * j + 1]),
          "r"(q[4 * j + 2]), "r"(q[4 * j + 3]));
    }
  }
  DEVICE void send(uint8_t* to) const {  // from there to memory
    PTX("fence.proxy.async.shared::cta;");
    meet();
    if (thread > 0) return;
    PTX("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;", "l"(to), "r"(s.piece(group)), "r"(kHalf));
    PTX("cp.async.bulk.commit_group;");
  }
  // Four lanes share a row. They exchange what they hold of four groups of 8 columns, so that each stores one group.
  DEVICE void store(const float (&d)[64], uint32_t* out, const Tile& t, int first) const {
    for (int i = 0; i < 8; ++i) {
      const int h = i / 4, y = t.row + first + row + 8 * h;
      uint32_t w[4];
      for (int k = 0; k < 4; ++k) w[k] = pack(d[i % 4 * 16 + k * 4 + 2 * h], d[i % 4 * 16 + k * 4 + 2 * h + 1]);
      for (int bit = 1; bit < 4; bit *= 2)
        for (int k = 0; k < 4; k += k & bit ? 1 : 1 + 0)
          if (!(k & bit)) {
            const uint32_t other = __shfl_xor_sync(0xffffffff, lane & bit ? w[k] : w[k | bit], bit);
            (lane & bit ? w[k] : w[k | bit]) = other;
          }
      uint4* line = reinterpret_cast<uint4*>(out + ((size_t)t.head * args.rows + y) * (kDim / 2)) + i % 4 * 4;
      if (y < args.rows) line[lane % 4] = {w[0], w[1], w[2], w[3]};
    }
  }
  DEVICE void sum_keys(const Tile& t) {
    const bool skips = kCausal && group == 1;  // the first 64 queries of a tile see none of its last 64 keys
    const int own = t.row / 64 + group;
    if (skips) wait(s.full(), s.parity), release(s.empty()), s.next();
    wait(s.full(), s.parity), start_rows(x, 0);
    for (int i = skips;; ++i) {
      uint32_t p[16], q[16];  // P and dS as operands
      const bool last = i == t.blocks - 1;
      start_rows(y, 1), wgmma_wait<1>(x);
      for (int j = 0; j < 32 && kCausal && i == skips; ++j)  // the diagonal block
        x[j] = j / 4 * 8 + lane % 4 * 2 + j % 2 < row + j / 2 % 2 * 8 ? -INFINITY : x[j];
      exponentiate(p);
      start_sum(out2, p, s.block(1), i > skips);
      if (thread == 0) PTX("cp.async.bulk.wait_group.read 0;");  // the last dS has left
      meet();
      wgmma_wait<1>(y);
      if (last) release(s.own_empty());
      differentiate(q, args.rows - own * 64);
      share(q);
      start_sum(out1, q, s.block(0), i > skips);
      const uint32_t used = s.empty();
      s.next();
      if (last) {
        send(args.piece(t.head, t.first + i, own));
        wgmma_wait<0>(out1), wgmma_wait<0>(out2), release(used);
        break;
      }
      wait(s.full(), s.parity), start_rows(x, 0);
      send(args.piece(t.head, t.first + i, own));
      wgmma_wait<1>(out1);  // the operands are free again before dP needs registers
      release(used);
    }
    store(out1, args.dk, t, group * 64), store(out2, args.dv, t, group * 64);
    if (thread == 0) PTX("cp.async.bulk.wait_group 0;");
  }
  DEVICE void sum_queries(const Tile& t) {
    const int own = t.row / kBlock + 2 * group, end = kCausal ? own : t.blocks;  // the first of two blocks of queries
    const int last = own < args.blocks() ? end : -2;  // block of keys that it sees; the second one sees one more
    release(s.own_empty());
    for (int i = 0; i < t.blocks; ++i, s.next()) {
      wait(s.full(), s.parity);
      if (i <= last) start_sum(out1, operand(s.pieces(2 * group)), s.pieces(kPieces), i > 0);
      if (i <= last + 1) start_sum(out2, operand(s.pieces(2 * group + 1)), s.pieces(kPieces), i > 0);
      wgmma_wait<0>(out1), wgmma_wait<0>(out2);
      release(s.empty());
    }
    store(out1, args.dq, t, group * 128);
    store(out2, args.dq, t, group * 128 + 64);
  }
  DEVICE void consume() {
    for (uint32_t parity = 0;; parity ^= 1) {
      wait(s.own_full(), parity);
      // Uniform, so that what depends on it is.
      const int ticket = __shfl_sync(0xffffffff, *static_cast<const int*>(__cvta_shared_to_generic(s.tile())), 0);
      if (ticket >= args.tickets()) return;
      const Tile t = tile_of(ticket, args);
      t.keys ? sum_keys(t) : sum_queries(t);
      if (thread == 0) PTX("red.release.gpu.global.add.u32 [%0], 1;", "l"(args.done(t.keys, t.head)));
    }
  }
};
__global__ void __launch_bounds__(kThreads, 1) gradients(const __grid_constant__ Args args) {
  extern __shared__ uint8_t raw[];
  const Shared s{((uint32_t)__cvta_generic_to_shared(raw) + kAlign - 1) & ~(uint32_t)(kAlign - 1)};
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  if (threadIdx.x == 0) {
    for (Shared i = s; i.parity == 0; i.next()) init(i.full(), 1), init(i.empty(), 4 * kGroups);
    init(s.own_full(), 1), init(s.own_empty(), 4 * kGroups);
    PTX("fence.mbarrier_init.release.cluster;");
  }
  __syncthreads();
  if (warpgroup == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) produce(s, args);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    Consumer{s, args, warpgroup - 1}.consume();
  }
}
struct alignas(16) Eight { __nv_bfloat162 pair[4]; };
// Both numbers of every row, 16 threads per row, and zero counters; rows beyond S get those that make P and dS zero.
__global__ void __launch_bounds__(256) prepare(const Eight* o, const Eight* grad, const float* lse, Args args) {
  if (threadIdx.x == 0) args.counters[blockIdx.x] = 0;  // there are fewer, but room for these
  const int64_t index = (int64_t)blockIdx.x * 16 + threadIdx.x / 16, padded = args.blocks() * kBlock;
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
  float* vectors = args.vectors + index / 64 * 128 + index % 64;
  vectors[0] = row < args.rows ? -lse[line] * kLog2e : -INFINITY, vectors[64] = -kScale * sum;
}
void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorString(error);
}
// [heads, rows, 128] as (64 columns, row, half, head), read in SW128 boxes of both halves of 64 rows.
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
  Args args{tensor_map(Q), tensor_map(K), tensor_map(V), tensor_map(dO), nullptr, nullptr, nullptr,
            static_cast<uint32_t*>(dQ.data_ptr()), static_cast<uint32_t*>(dK.data_ptr()),
            static_cast<uint32_t*>(dV.data_ptr()), (int)Q.size(2), (int)(Q.size(0) * Q.size(1))};
  const size_t room = (size_t)args.tiles(false) * args.blocks() * kBytesPieces;  // of one head
  args.slots = static_cast<int>(std::clamp<size_t>(kRoom / room, 1, args.heads));
  args.lag = args.slots * 2 / 3;
  const size_t rows = (size_t)args.heads * args.blocks() * kBlock, parts = rows / 16;
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  int sms = 0;
  uint64_t threshold = UINT64_MAX;
  cudaMemPool_t pool;  // is told to keep the workspace, which every synchronisation would give back to the system
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, Q.device().device_id), "multiprocessor count");
  check(cudaDeviceGetDefaultMemPool(&pool, Q.device().device_id), "memory pool");
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold), "memory pool");
  check(cudaMallocAsync(&args.pieces, args.slots * room + sizeof(float) * (2 * rows + parts), stream), "workspace");
  args.vectors = reinterpret_cast<float*>(args.pieces + args.slots * room);
  args.counters = reinterpret_cast<unsigned*>(args.vectors + 2 * rows);
  prepare<<<parts, 256, 0, stream>>>(static_cast<const Eight*>(O.data_ptr()), static_cast<const Eight*>(dO.data_ptr()),
                                     static_cast<const float*>(LSE.data_ptr()), args);
  check(cudaFuncSetAttribute(gradients, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes), "shared memory");
  gradients<<<std::min(sms, args.tickets()), kThreads, kSharedBytes, stream>>>(args);
  check(cudaGetLastError(), "launch");
  check(cudaFreeAsync(args.pieces, stream), "workspace");
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
