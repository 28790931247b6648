// O = softmax(Q K^T / sqrt(128)) V and LSE = ln(sum(exp(Q K^T / sqrt(128)))), full attention, for Blackwell, sm_100a.
// Q, K, V, O are [B, H, S, 128] bf16, LSE is [B, H, S] fp32; any S >= 1.
//
// Persistent CTAs; an item is two tiles of 128 rows of one head, which share every block of 128 keys. One thread loads
// (TMA, SW128), one multiplies (tcgen05.mma 128x128x16), and three warpgroups work on tensor memory, a row per thread:
// two compute the softmax, one for each tile, the third corrects and stores the outputs. Scores of a tile become
// probabilities in place (bf16, over the upper half of their columns) and from there the operand of the second product.
// While one tile's softmax runs, the tensor core works for the other. A row's reference moves only when its maximum has
// grown by more than 2^8, so that outputs are seldom rescaled, and some exponentials are polynomials (both as in
// FlashAttention-4). Blocks are walked from the last to the first: only a tile's first one can need a mask.
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
constexpr int kDim = 128, kBlock = 128;   // columns; rows of a tile and keys of a block
constexpr int kTiles = 2, kBarriers = 9;  // tiles of an item, barriers of a tile
constexpr int kStages = 4;                // blocks of K and V, by turns, in shared memory
constexpr int kThreads = 512;             // warps 0-3, 4-7: softmax; 8-11: correction; 12: products; 13: loads
constexpr float kLn2 = 0.6931471805599453f;
constexpr float kScale = 0.08838834764831845f / kLn2;  // 1 / sqrt(kDim), and scores become exponents of two
constexpr float kSlack = 8.f;                          // by which they may exceed the reference
constexpr int kPolynomial = 4;                         // of so many pairs of exponentials one is a polynomial
constexpr int kGroupBytes = 48 << 20;  // K and V of heads that are walked together; without a mask it is one by one
constexpr int kBytes = kBlock * kDim * 2, kHalf = kBytes / 2;  // a tile or block; 64 of its columns
constexpr int kOffsetRing = kTiles * kBytes, kOffsetOut = kOffsetRing + kStages * kBytes;
constexpr int kOffsetStats = kOffsetOut + kBytes, kOffsetBarriers = kOffsetStats + kTiles * kBlock * 4;
constexpr int kOffsetColumns = kOffsetBarriers + (2 * kStages + kBarriers * kTiles) * 8, kAlign = 1024;  // of SW128
constexpr int kSharedBytes = kOffsetColumns + 4 + kAlign;
static_assert(kSharedBytes <= 232448, "opt-in shared memory of one CTA");
// D of fp32, A and B of bf16, N / 8 and M / 16; V is read across its rows (PTX ISA, tcgen05 instruction descriptor).
constexpr uint32_t kRows = 1u << 4 | 1u << 7 | 1u << 10 | (kBlock / 8) << 17 | (kBlock / 16) << 24;
constexpr uint32_t kColumns = kRows | 1u << 16;
struct Args {
  CUtensorMap q, k, v, o;
  float* lse;
  int rows, heads, items_per_head, heads_per_group;
  __host__ __device__ int items() const { return heads * items_per_head; }
};
DEVICE bool elected() {
  uint32_t one;
  asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}" : "=r"(one));
  return one != 0;
}
DEVICE void init(uint32_t b, uint32_t count) { PTX("mbarrier.init.shared.b64 [%0], %1;", "r"(b), "r"(count)); }
DEVICE void wait(uint32_t b, uint32_t parity) {
  PTX("{.reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra again;}", "r"(b), "r"(parity));
}
DEVICE void arrive(uint32_t b) {  // once for a warp, behind what all of its lanes did
  __syncwarp();
  if (threadIdx.x % 32 == 0) PTX("mbarrier.arrive.shared.b64 _, [%0];", "r"(b));
}
// Both 64-column halves of 128 rows of one head, the second half behind the first; rows beyond the head read as zero.
DEVICE void tma_load(uint32_t dst, const CUtensorMap* map, uint32_t barrier, int row, int head) {
  PTX("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;", "r"(barrier), "r"(kBytes));
  PTX("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %3, %5}], "
      "[%2];", "r"(dst), "l"(map), "r"(barrier), "r"(0), "r"(row), "r"(head));
}
DEVICE void fence_before() { PTX("tcgen05.fence::before_thread_sync;"); }
DEVICE void fence_after() { PTX("tcgen05.fence::after_thread_sync;"); }
DEVICE void meet() { __syncwarp(), fence_before(), __syncthreads(), fence_after(); }
// Shared-memory operands in SW128 (PTX ISA, tcgen05 matrix descriptor): groups of 8 rows lie 1024 bytes apart. With the
// product's inner dimension along the row the other stride is unused; across the rows it leads to the second half.
DEVICE uint64_t operand(uint32_t address, uint32_t stride = 16) {
  return (uint64_t)((address & 0x3FFFF) >> 4) | (uint64_t)(stride >> 4) << 16 | 64ull << 32 | 1ull << 46 | 2ull << 61;
}
#define MMA(a) "{.reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], " a ", %2, %3, p;}"
DEVICE void mma(uint32_t d, uint64_t a, uint64_t b, bool more) {
  PTX(MMA("%1"), "r"(d), "l"(a), "l"(b), "r"(kRows), "r"((uint32_t)more));
}
DEVICE void mma(uint32_t d, uint32_t a, uint64_t b, bool more) {  // a: in tensor memory
  PTX(MMA("[%1]"), "r"(d), "r"(a), "l"(b), "r"(kColumns), "r"((uint32_t)more));
}
DEVICE void commit(uint32_t b) {  // arrives when everything that this thread multiplied so far is done
  PTX("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];", "r"(b));
}
#define EACH8(c, i) c(x[i]), c(x[i + 1]), c(x[i + 2]), c(x[i + 3]), c(x[i + 4]), c(x[i + 5]), c(x[i + 6]), c(x[i + 7])
#define EACH32(c) EACH8(c, 0), EACH8(c, 8), EACH8(c, 16), EACH8(c, 24)
#define REGS32 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
               "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
// Starts to bring 32 columns of the lane's row into registers, which hold them after `loaded`.
DEVICE void load(uint32_t* x, uint32_t at) {
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 " REGS32 ", [%32];" : EACH32("=r") : "r"(at) : "memory");
}
template <int kCount> DEVICE void loaded(uint32_t (&x)[kCount]) {
  PTX("tcgen05.wait::ld.sync.aligned;");
  UNROLL for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(x[i])::"memory");
}
DEVICE void store(uint32_t at, const uint32_t* x) {
  PTX("tcgen05.st.sync.aligned.32x32b.x32.b32 [%32], " REGS32 ";", EACH32("r"), "r"(at));
}
DEVICE void stored() { PTX("tcgen05.wait::st.sync.aligned;\n\ttcgen05.fence::before_thread_sync;"); }
DEVICE uint32_t pack(float2 x) {
  const __nv_bfloat162 pair = __float22bfloat162_rn(x);
  return reinterpret_cast<const uint32_t&>(pair);
}
DEVICE float exp2_approx(float x) { asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x)); return x; }
DEVICE float as_float(uint32_t x) { return __uint_as_float(x); }
// The same without the special function unit: 2^x = 2^n 2^f, n = floor(x), with a polynomial for 0 <= f < 1 whose
// relative error is below 2^-18. Adding kMagic leaves an integer in the low bits.
DEVICE float2 exp2_polynomial(float2 x) {
  constexpr float kMagic = 12582912.f;  // 1.5 * 2^23
  x = {fmaxf(x.x, -127.f), fmaxf(x.y, -127.f)};
  const float2 n = __fadd2_rd(x, {kMagic, kMagic}), floor = __fadd2_rn(n, {-kMagic, -kMagic});
  const float2 f = __fadd2_rn(x, {-floor.x, -floor.y});
  float2 p = __ffma2_rn(f, {0.01342669f, 0.01342669f}, {0.05224247f, 0.05224247f});
  for (float c : {0.24128021f, 0.69304484f, 1.f}) p = __ffma2_rn(p, f, {c, c});
  return {as_float(__float_as_uint(p.x) + (__float_as_uint(n.x) << 23)),
          as_float(__float_as_uint(p.y) + (__float_as_uint(n.y) << 23))};
}
// Barriers of a tile: scores, half of the probabilities, all of them are in tensor memory; output has been added to;
// it is corrected, or taken, and may be added to. Those behind kOutput get an arrival from each of four warps.
enum Barrier { kQFull, kQEmpty, kScored, kOutput, kHalfway, kExponentiated, kCorrected, kStatsFull, kStatsEmpty };
struct Shared {
  uint32_t base;
  DEVICE uint32_t q(int tile) const { return base + tile * kBytes; }
  DEVICE uint32_t block(int i) const { return base + kOffsetRing + i % kStages * kBytes; }
  DEVICE uint32_t full(int i) const { return base + kOffsetBarriers + i % kStages * 8; }
  DEVICE uint32_t empty(int i) const { return full(i) + kStages * 8; }
  DEVICE uint32_t of(int tile, int which) const { return full(0) + (2 * kStages + which * kTiles + tile) * 8; }
  DEVICE uint32_t stats(int tile) const { return base + kOffsetStats + (tile * kBlock + threadIdx.x % 128) * 4; }
  DEVICE uint32_t columns() const { return base + kOffsetColumns; }
};
DEVICE uint32_t scores_at(uint32_t columns, int tile) { return columns + tile * kBlock; }
DEVICE uint32_t probabilities_at(uint32_t columns, int tile) { return scores_at(columns, tile) + kBlock / 2; }
DEVICE uint32_t output_at(uint32_t columns, int tile) { return columns + kTiles * kBlock + tile * kDim; }
struct Item { int head, row, steps; };  // row: the first one; in each step a block of keys, the last one first
// Walks the heads in groups and each group from the last rows to the first, so the longest items of a group come first.
DEVICE Item item_of(int index, const Args& args) {
  const int first = index / (args.heads_per_group * args.items_per_head) * args.heads_per_group;
  const int heads = min(args.heads_per_group, args.heads - first), rest = index - first * args.items_per_head;
  const int pair = args.items_per_head - 1 - rest / heads, blocks = (args.rows + kBlock - 1) / kBlock;
  return {first + rest % heads, pair * kTiles * kBlock, kCausal ? (pair + 1) * kTiles : blocks};
}
// In the causal case the last block of an item is that of the diagonal of its second tile, which the first one skips.
DEVICE int first_step(int tile) { return kCausal && tile == 0; }
// Of the ring, place 2 i is K of step i and 2 i + 1 its V, counted over all items.
DEVICE void load_items(const Shared& s, const Args& args) {
  uint32_t parity = 1;
  for (int index = blockIdx.x, place = 0; index < args.items(); index += gridDim.x, parity ^= 1) {
    const Item item = item_of(index, args);
    for (const int end = place + 2 * item.steps, begin = place; place < end; ++place) {
      for (int tile = 0; tile < kTiles; ++tile) {
        if (place != begin + 2 * first_step(tile)) continue;  // just before it is needed
        wait(s.of(tile, kQEmpty), parity);
        tma_load(s.q(tile), &args.q, s.of(tile, kQFull), item.row + tile * kBlock, item.head);
      }
      wait(s.empty(place), (place / kStages & 1) ^ 1);
      tma_load(s.block(place), place % 2 ? &args.v : &args.k, s.full(place), (end - 1 - place) / 2 * kBlock, item.head);
    }
  }
}
// The thread that multiplies.
struct Products {
  const Shared s;
  const Args& args;
  const uint32_t columns;
  uint32_t done[kTiles] = {}, tiles[kTiles] = {};  // outputs added to; tiles of Q used up
  // Scores of a tile in this step. They lie over the probabilities that the tile's last output was made of.
  DEVICE void scores(int tile, int place, int step, int steps) {
    if (step < first_step(tile)) return;
    if (step == first_step(tile)) wait(s.of(tile, kQFull), tiles[tile] & 1);
    wait(s.full(place), place / kStages & 1);
    wait(s.of(tile, kOutput), (done[tile] & 1) ^ 1), fence_after();
    for (int i = 0; i < kDim / 16; ++i) {
      const int at = i / 4 * kHalf + i % 4 * 32;
      mma(scores_at(columns, tile), operand(s.q(tile) + at), operand(s.block(place) + at), i > 0);
    }
    commit(s.of(tile, kScored));
    if (step == steps - 1) commit(s.of(tile, kQEmpty)), ++tiles[tile];
  }
  DEVICE void output(int tile, int place, int step) {
    if (step < first_step(tile)) return;
    wait(s.full(place), place / kStages & 1), wait(s.of(tile, kCorrected), done[tile] & 1);
    for (int i = 0; i < kBlock / 16; ++i) {
      if (i % 4 == 0) wait(s.of(tile, i > 0 ? kExponentiated : kHalfway), done[tile] & 1), fence_after();
      mma(output_at(columns, tile), probabilities_at(columns, tile) + i * 8, operand(s.block(place) + i * 2048, kHalf),
          step > first_step(tile) || i > 0);
    }
    commit(s.of(tile, kOutput)), ++done[tile];
  }
  // Scores of a step follow the outputs of the step before, tile by tile.
  DEVICE void run() {
    int index = blockIdx.x, step = 0, before = 0, steps = item_of(index, args).steps;
    for (int place = 0;; place += 2) {
      const bool more = index < args.items();
      for (int tile = 0; tile < kTiles; ++tile) {
        if (place > 0) output(tile, place - 1, before);
        if (place > 0 && tile == kTiles - 1) commit(s.empty(place - 1));
        if (more) scores(tile, place, step, steps);
      }
      if (!more) return;
      commit(s.empty(place));
      before = step++;
      if (step < steps) continue;
      step = 0, index += gridDim.x;
      if (index < args.items()) steps = item_of(index, args).steps;
    }
  }
};
// A softmax warpgroup; a thread has one row of the tile.
struct Softmax {
  const Shared s;
  const Args& args;
  const uint32_t columns;
  const int tile, row = threadIdx.x % 128;
  uint32_t count = 0, sent = 0;  // blocks; numbers handed to the correction
  uint32_t x[kBlock];            // scores
  DEVICE void send(float number) {
    wait(s.of(tile, kStatsEmpty), (sent++ & 1) ^ 1);
    PTX("st.shared.f32 [%0], %1;", "r"(s.stats(tile)), "f"(number));
    arrive(s.of(tile, kStatsFull));
  }
  DEVICE void receive(int visible) {
    wait(s.of(tile, kScored), count++ & 1), fence_after();
    UNROLL for (int i = 0; i < kBlock; i += 32) load(x + i, scores_at(columns, tile) + i);
    loaded(x);
    if (visible >= kBlock) return;
    UNROLL for (int i = 0; i < kBlock; ++i) x[i] = i < visible ? x[i] : 0xff800000;  // minus infinity
  }
  // Writes probabilities with respect to the exponent `top`, and returns their sum.
  DEVICE float exponentiate(float top) {
    float2 sum[2] = {};
    UNROLL for (int i = 0; i < kBlock; i += 64) {
      uint32_t p[32];
      UNROLL for (int j = 0; j < 32; ++j) {
        float2 e = __ffma2_rn({as_float(x[i + 2 * j]), as_float(x[i + 2 * j + 1])}, {kScale, kScale}, {-top, -top});
        e = j % kPolynomial == 0 ? exp2_polynomial(e) : float2{exp2_approx(e.x), exp2_approx(e.y)};
        sum[j % 2] = __fadd2_rn(sum[j % 2], e);
        p[j] = pack(e);
      }
      store(probabilities_at(columns, tile) + i / 2, p), stored();
      arrive(s.of(tile, i > 0 ? kExponentiated : kHalfway));
    }
    return (sum[0].x + sum[1].x) + (sum[0].y + sum[1].y);
  }
  DEVICE void run() {
    for (int index = blockIdx.x; index < args.items(); index += gridDim.x) {
      const Item item = item_of(index, args);
      float top = -INFINITY, sum = 0.f;
      for (int step = first_step(tile); step < item.steps; ++step) {
        const bool first = step == first_step(tile);
        receive(!first ? kBlock : kCausal ? row + 1 : args.rows - (item.steps - 1) * kBlock);
        float high = as_float(x[0]);
        UNROLL for (int i = 1; i < kBlock; ++i) high = fmaxf(high, as_float(x[i]));
        const bool moves = high * kScale > top + kSlack;
        const float shrink = moves ? exp2_approx(fmaf(high, -kScale, top)) : 1.f;
        if (moves) top = high * kScale;
        if (!first) send(shrink);
        sum = fmaf(sum, shrink, exponentiate(top));
      }
      send(1.f / sum);
      const int y = item.row + tile * kBlock + row;
      if (y < args.rows) args.lse[(size_t)item.head * args.rows + y] = (top + __log2f(sum)) * kLn2;
    }
  }
};
// The correction warpgroup; a thread has one row of both outputs.
struct Correction {
  const Shared s;
  const Args& args;
  const uint32_t columns;
  const int row = threadIdx.x % 128;
  uint32_t received[kTiles] = {};  // numbers: one for each block
  DEVICE float receive(int tile) {
    wait(s.of(tile, kStatsFull), received[tile]++ & 1);
    const float number = *static_cast<const float*>(__cvta_shared_to_generic(s.stats(tile)));
    arrive(s.of(tile, kStatsEmpty));
    fence_after();  // who wrote the number has seen scores that were multiplied after the last output
    return number;
  }
  DEVICE void take(float2 (&y)[16], uint32_t at, float f) {  // 32 columns, multiplied
    uint32_t x[32];
    load(x, at), loaded(x);
    UNROLL for (int i = 0; i < 16; ++i) y[i] = __fmul2_rn({as_float(x[2 * i]), as_float(x[2 * i + 1])}, {f, f});
  }
  DEVICE void rescale(int tile, float shrink) {
#pragma unroll 1
    for (int i = 0; i < kDim; i += 32) {
      float2 y[16];
      take(y, output_at(columns, tile) + i, shrink);
      store(output_at(columns, tile) + i, reinterpret_cast<const uint32_t*>(y));
    }
    stored();
  }
  // Divides by the sum, and stores the tile by way of shared memory.
  DEVICE void finish(int tile, float inverse, const Item& item) {
    wait(s.of(tile, kOutput), (received[tile] - 1) & 1), fence_after();
    if (row == 0) PTX("cp.async.bulk.wait_group.read 0;");
    PTX("bar.sync 1, 128;");
#pragma unroll 1
    for (int i = 0; i < kDim; i += 32) {
      float2 y[16];
      take(y, output_at(columns, tile) + i, inverse);
      const uint32_t line = s.base + kOffsetOut + i / 64 * kHalf + row * 128;
      UNROLL for (int j = 0; j < 16; j += 4)
        PTX("st.shared.v4.b32 [%0], {%1, %2, %3, %4};", "r"(line + ((i / 8 % 8 + j / 4) ^ row % 8) * 16),
            "r"(pack(y[j])), "r"(pack(y[j + 1])), "r"(pack(y[j + 2])), "r"(pack(y[j + 3])));
    }
    fence_before(), arrive(s.of(tile, kCorrected));  // for the first block of the next item
    PTX("fence.proxy.async.shared::cta;\n\tbar.sync 1, 128;");
    if (row == 0) PTX("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %2, %4}], [%1];\n\t"
                      "cp.async.bulk.commit_group;", "l"(&args.o), "r"(s.base + kOffsetOut), "r"(0),
                      "r"(item.row + tile * kBlock), "r"(item.head));  // rows beyond the head are left out
  }
  DEVICE void run() {
    for (int tile = 0; tile < kTiles; ++tile) arrive(s.of(tile, kCorrected));
    for (int index = blockIdx.x; index < args.items(); index += gridDim.x) {
      const Item item = item_of(index, args);
      for (int step = 0; step < item.steps; ++step) {
        for (int tile = 0; tile < kTiles; ++tile) {
          if (step <= first_step(tile)) continue;
          const float shrink = receive(tile);
          if (__any_sync(0xffffffff, shrink != 1.f)) rescale(tile, shrink);
          arrive(s.of(tile, kCorrected));
        }
      }
      for (int tile = 0; tile < kTiles; ++tile) finish(tile, receive(tile), item);
    }
    if (row == 0) PTX("cp.async.bulk.wait_group 0;");
  }
};
__global__ void __launch_bounds__(kThreads, 1) attention(const __grid_constant__ Args args) {
  extern __shared__ uint8_t raw[];
  const Shared s{((uint32_t)__cvta_generic_to_shared(raw) + kAlign - 1) & ~(uint32_t)(kAlign - 1)};
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);  // uniform registers for what depends on it
  if (warp == 13 && elected()) {
    for (int i = 0; i < 2 * kStages; ++i) init(s.full(0) + i * 8, 1);
    for (int i = 0; i < kTiles * kBarriers; ++i) init(s.of(i % kTiles, i / kTiles), i / kTiles > kOutput ? 4 : 1);
    PTX("fence.mbarrier_init.release.cluster;");
  }
  if (warp == 12)
    PTX("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 512;\n\t"
        "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;", "r"(s.columns()));
  meet();
  const uint32_t columns = *static_cast<const uint32_t*>(__cvta_shared_to_generic(s.columns()));
  const uint32_t lanes = columns + ((uint32_t)(warp % 4 * 32) << 16);  // those that this warp can reach
  if (warp < 8) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 192;");
    Softmax{s, args, lanes, warp / 4}.run();
  } else if (warp < 12) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 80;");
    Correction{s, args, lanes}.run();
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 48;");
    if (warp == 12 && elected()) Products{s, args, columns}.run();
    if (warp == 13 && elected()) load_items(s, args);
  }
  meet();
  if (warp == 12) PTX("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 512;", "r"(columns));
}
void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorString(error);
}
// [heads, rows, 128] as (64 columns, row, half, head), moved in SW128 boxes of both halves of 128 rows.
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
         tvm::ffi::TensorView LSE) {
  for (const auto& x : {Q, K, V, O}) {
    TVM_FFI_ICHECK(x.ndim() == 4 && x.size(0) == Q.size(0) && x.size(1) == Q.size(1) && x.size(2) == Q.size(2) &&
                   x.size(3) == kDim) << "Q, K, V and O must be [B, H, S, 128]";
  }
  TVM_FFI_ICHECK(LSE.numel() * kDim == Q.numel()) << "LSE must be [B, H, S]";
  if (Q.numel() == 0) return;
  const int heads = static_cast<int>(Q.size(0) * Q.size(1)), rows = static_cast<int>(Q.size(2));
  const int items_per_head = (rows + kTiles * kBlock - 1) / (kTiles * kBlock);
  const Args args{tensor_map(Q), tensor_map(K), tensor_map(V), tensor_map(O), static_cast<float*>(LSE.data_ptr()), rows,
                  heads, items_per_head, kCausal ? std::clamp(kGroupBytes / (rows * kDim * 4), 1, heads) : 1};
  int sms = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, Q.device().device_id), "multiprocessor count");
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  check(cudaFuncSetAttribute(attention, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes), "shared memory");
  attention<<<std::min(sms, args.items()), kThreads, kSharedBytes, stream>>>(args);
  check(cudaGetLastError(), "attention launch");
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
