#pragma once
// Calls every function of warp.cuh, barrier.cuh and tma.cuh of the knowledge packs where a wrong one shows in an output.
#include "barrier.cuh"
#include "tma.cuh"
#include "warp.cuh"

#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

// x [256] -> y [8, 256]: maximum and sum of four lanes, 2^x, both halves of pack(x, -x), the leader's warp + 1, a word that
// the second warpgroup hands over, two matrices of 8 x 8 in 16-byte rows and what ldmatrix makes of them.
__global__ void __launch_bounds__(256, 1) lanes(const float* x, float* y) {
  __shared__ alignas(16) uint32_t tile[2][128];
  __shared__ float handed[128];
  const int thread = threadIdx.x, lane = thread % 32;
  const float value = x[thread];
  const uint32_t pair = pack(value, -value);
  if (warp_index() < 4) {
    lower_registers<64>();
  } else {
    raise_registers<240>();
  }
  y[thread] = quad_max(value);
  y[256 + thread] = quad_sum(value);
  y[512 + thread] = exp2_approx(value);
  y[768 + thread] = __uint_as_float(pair << 16);
  y[1024 + thread] = __uint_as_float(pair & 0xffff0000u);
  y[1280 + thread] = elected() ? warp_index() + 1.f : 0.f;
  if (warp_index() >= 4) {
    handed[thread - 128] = value;
    bar_arrive(1, 256);
  } else {
    bar_sync(1, 256);
    y[1536 + thread] = handed[thread];
  }
  y[1792 + thread] = 0.f;
  if (warp_index() > 0) return;
  uint32_t r[4];
  for (int i = 0; i < 4; ++i) r[i] = pack(i * 64 + lane * 2, i * 64 + lane * 2 + 1);
  const uint32_t row = shared_address(tile) + lane * 16;
  stmatrix(row, r[0], r[1], r[2], r[3]);
  stmatrix_trans(row + 512, r[0], r[1], r[2], r[3]);
  __syncwarp();
  uint32_t back[4];
  ldmatrix(back, row);
  bool same = true;
  for (int i = 0; i < 4; ++i) same &= back[i] == r[i];
  const uint4 line = load_shared(row + 512);
  __syncwarp();
  store_shared(row, line.w, line.z, line.y, line.x);
  __syncwarp();
  // Elements 1 and 0 of the line's last word: of row lane % 8 of the transposed matrix lane / 8, columns 7 and 6.
  y[1792 + lane] = __uint_as_float(tile[0][lane * 4] & 0xffff0000u);
  y[1824 + lane] = __uint_as_float(tile[0][lane * 4] << 16);
  y[1856 + lane] = same;
}

struct Maps {
  CUtensorMap matrix, head, out, sums;
};

struct Room {  // shared memory of `copies`
  uint32_t base;
  __device__ uint32_t halves() const { return base; }            // two boxes of 16 rows x 64 columns, bf16
  __device__ uint32_t head() const { return base + 4096; }       // the same, of one head
  __device__ uint32_t run() const { return base + 8192; }        // 64 floats
  __device__ uint32_t sent() const { return base + 8448; }       // 64 floats of the peer
  __device__ uint32_t told() const { return base + 8704; }       // a word of the peer
  __device__ uint32_t found() const { return base + 8720; }      // 16 bytes that the peer left in global memory
  __device__ uint32_t barrier(int i) const { return base + 8736 + i * 8; }
};

__device__ void start_copies(const Room& s, uint32_t rank) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < 6; ++i) barrier_init(s.barrier(i), 1);
    barrier_fence();
  }
  cluster_sync();
  if (threadIdx.x == 0) {
    barrier_expect(s.barrier(0), 4096);
    barrier_expect(s.barrier(2), 256);
    barrier_arrive_at(s.barrier(3), rank ^ 1);  // the peer may send: something is expected
    barrier_wait(s.barrier(3), 0);
  }
}

// Clusters of two. matrix [16, 128] and heads [2, 16, 128] go through shared memory to out [48, 128], and are added to
// sums [16, 128]; x [2, 64] of floats goes to y [4, 64] and each CTA's part also through its peer; z [2, 64] gets x added.
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128, 1)
    copies(const __grid_constant__ Maps maps, const float* x, float* y, float* z, unsigned* words) {
  extern __shared__ uint8_t raw[];
  const Room s{aligned_shared(raw)};
  const uint32_t rank = cluster_rank();
  start_copies(s, rank);
  if (threadIdx.x == 0) {
    tma_load_multicast(s.halves() + rank * 2048, &maps.matrix, s.barrier(0), rank * 64, 0, 3);
    barrier_expect(s.barrier(1), 4096 + 256);
    tma_load(s.head(), &maps.head, s.barrier(1), 0, 0, 0, rank);
    bulk_load(s.run(), x + rank * 64, s.barrier(1), 256);
    barrier_wait(s.barrier(0), 0);
    barrier_wait(s.barrier(1), 0);
    tma_store(&maps.out, s.halves() + rank * 2048, rank * 64, 0);
    tma_store(&maps.out, s.head(), 0, 16 + rank * 16);
    tma_store(&maps.out, s.head() + 2048, 64, 16 + rank * 16);
    tma_commit();
    tma_add(&maps.sums, s.halves() + rank * 2048, rank * 64, 0);
    bulk_store(y + rank * 64, s.run(), 256);
    bulk_add(z + rank * 64, s.run(), 256);
    bulk_send(map_to_rank(s.sent(), rank ^ 1), s.run(), map_to_rank(s.barrier(2), rank ^ 1), 256);
    tma_commit();
    tma_wait_read<1>();
    asm volatile("st.shared::cluster.b32 [%0], %1;" ::"r"(map_to_rank(s.told(), rank ^ 1)), "r"(rank + 7) : "memory");
    barrier_release_at(s.barrier(4), rank ^ 1);
    barrier_wait(s.barrier(2), 0);
    bulk_store(y + 128 + rank * 64, s.sent(), 256);
    tma_commit();
    barrier_acquire(s.barrier(4), 0);
    unsigned told;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(told) : "r"(s.told()) : "memory");
    words[8 + rank] = told;
    for (int i = 0; i < 4; ++i) words[rank * 4 + i] = 10 * rank + i;
    fence_async_all();
    counter_add(words + 16, 1);
    counter_wait(words + 16, 2);
    fence_async_all();
    barrier_expect(s.barrier(5), 16);
    bulk_load(s.found(), words + (rank ^ 1) * 4, s.barrier(5), 16);
    barrier_wait(s.barrier(5), 0);
    const uint4 found = load_shared(s.found());
    words[10 + rank] = found.x + found.y + found.z + found.w;
    tma_wait<0>();
  }
  cluster_sync();
}

// Six boxes of matrix [16, 128] (16 columns each would not fit the swizzle: halves by turns) through a ring of two.
__global__ void __launch_bounds__(64, 1) rings(const __grid_constant__ Maps maps, float* y) {
  extern __shared__ uint8_t raw[];
  const uint32_t base = aligned_shared(raw), full = base + 4096, empty = full + 16;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) barrier_init(full + i * 8, 1), barrier_init(empty + i * 8, 32);
    barrier_fence();
  }
  __syncthreads();
  Ring<2> ring;
  float sum = 0.f;
  for (int step = 0; step < 6; ++step, ring.next()) {
    if (threadIdx.x == 32) {
      barrier_wait(empty + ring.place * 8, ring.parity ^ 1);
      barrier_expect(full + ring.place * 8, 2048);
      tma_load(base + ring.place * 2048, &maps.matrix, full + ring.place * 8, step % 2 * 64, 0);
    } else if (threadIdx.x < 32) {
      barrier_wait(full + ring.place * 8, ring.parity);
      const uint32_t row = threadIdx.x % 16;
      const uint4 chunk = load_shared(base + ring.place * 2048 + row * 128 + ((threadIdx.x / 16) ^ (row % 8)) * 16);
      sum += __uint_as_float(chunk.x << 16);  // element 8 (lane / 16) of the row
      fence_async();                          // read here, overwritten by TMA
      barrier_arrive(empty + ring.place * 8);
    }
  }
  if (threadIdx.x < 32) y[threadIdx.x] = sum;
}

struct Floats {
  float* data;
  explicit Floats(const tvm::ffi::TensorView& x) : data(static_cast<float*>(x.data_ptr())) {}
};

// Shapes: see the kernels; words is fp32 [32], read as 32-bit words.
inline void run_common(const tvm::ffi::TensorView* t, cudaStream_t stream) {
  const Maps maps{matrix_map(t[2].data_ptr(), 16, 128, 16), head_map(t[3].data_ptr(), 2, 16, 16),
                  matrix_map(t[4].data_ptr(), 48, 128, 16), matrix_map(t[5].data_ptr(), 16, 128, 16)};
  lanes<<<1, 256, 0, stream>>>(Floats(t[0]).data, Floats(t[1]).data);
  check(cudaGetLastError(), "lanes");
  copies<<<2, 128, 16384, stream>>>(maps, Floats(t[6]).data, Floats(t[7]).data, Floats(t[8]).data,
                                    static_cast<unsigned*>(t[9].data_ptr()));
  rings<<<1, 64, 8192, stream>>>(maps, Floats(t[10]).data);
  check(cudaGetLastError(), "copies");
}
