// Calls every function of the knowledge pack's headers for Blackwell.
#include "common.cuh"
#include "tcgen05.cuh"

struct Operands {
  CUtensorMap a, b, across_a, across_b;  // [kRows, 64], [128, 64]; [64 of K, 128], [128 of K, 128]
};

struct Shared {
  uint32_t base;
  __device__ uint32_t a() const { return base; }
  __device__ uint32_t b() const { return base + 16384; }
  __device__ uint32_t across_a() const { return base + 32768; }
  __device__ uint32_t across_b() const { return base + 49152; }  // two blocks of 64 columns, 128 of K each
  __device__ uint32_t loaded() const { return base + 81920; }
  __device__ uint32_t done(int i) const { return base + 81928 + i * 8; }
  __device__ uint32_t slot() const { return base + 81960; }
};

constexpr int kShared = 81968 + 1024;

// A row of fp32 in tensor memory to bf16 in half as many columns.
__device__ void round_rows(uint32_t from, uint32_t to) {
  uint32_t v[64], w[32];
  load_row(v, own_lanes(from));
  for (int i = 0; i < 32; ++i) w[i] = pack(v[2 * i], v[2 * i + 1]);
  store_row(own_lanes(to), w);
}

__device__ void write_rows(uint32_t columns, float* out) {
  uint32_t v[32];
  for (int part = 0; part < 128; part += 32) {
    load_row(v, own_lanes(columns + part));
    for (int i = 0; i < 32; ++i) out[threadIdx.x * 128 + part + i] = __uint_as_float(v[i]);
  }
}

template <int kCtas>
__device__ uint32_t begin(const Shared& s, int warp) {
  if (threadIdx.x == 0) {
    barrier_init(s.loaded(), 1);
    for (int i = 0; i < 3; ++i) barrier_init(s.done(i), 1);
    barrier_fence();
  }
  if (warp == 1) tmem_alloc<kCtas>(s.slot(), 512);
  fence_before();
  cluster_sync();
  fence_after();
  return tmem_address(s.slot());
}

template <int kCtas>
__device__ void end(uint32_t columns, int warp) {
  fence_before();
  cluster_sync();
  if (warp == 1) {
    fence_after();
    tmem_free<kCtas>(columns, 512);
  }
}

template <int kCtas>
__device__ void tell(uint32_t barrier) {
  if constexpr (kCtas == 1) {
    commit(barrier);
  } else {
    commit_pair(barrier);
  }
}

// Loads, in one thread: the CTA's rows of a, its columns of b and, alone, what lies across.
template <int kCtas>
__device__ void load(const Shared& s, const Operands& maps, int rank) {
  constexpr int kWide = 128 / kCtas, kBytes = 16384 + kWide * 128 + 16384 * (kCtas == 1 ? 3 : 1);
  if (rank == 0) barrier_expect(s.loaded(), kBytes * kCtas);
  const auto box = [&](uint32_t dst, const CUtensorMap* map, int x, int y) {
    kCtas == 1 ? tma_load(dst, map, s.loaded(), x, y) : tma_load_pair(dst, map, s.loaded(), x, y);
  };
  box(s.a(), &maps.a, 0, rank * 128);
  box(s.b(), &maps.b, 0, rank * kWide);
  box(s.across_b(), &maps.across_b, rank * 64, 0);
  if (kCtas == 2) return;
  box(s.across_b() + 16384, &maps.across_b, 64, 0);
  box(s.across_a(), &maps.across_a, 0, 0);
  box(s.across_a() + 8192, &maps.across_a, 64, 0);
}

// d = a b^T, rounded to bf16 in tensor memory by the first four warps, then e = d (128 of K) across_b, and with one CTA
// f = across_a^T across_b[0:64]. Of a pair, each CTA has its rows of a, d and e and its half of b. Warp 4 issues.
template <int kCtas>
__device__ void products(const Operands& maps, float* out, int rank) {
  extern __shared__ uint8_t raw[];
  const Shared s{aligned_shared(raw)};
  const int warp = warp_index();
  const uint32_t d = begin<kCtas>(s, warp), rounded = d + 128, e = d + 256, f = d + 384;
  constexpr int kRows = 128 * kCtas;
  const bool issuer = threadIdx.x == 128 && rank == 0;
  const uint64_t a = operand(s.a()), b = operand(s.b()), tb = operand_across(s.across_b(), 16384);
  if (threadIdx.x == 128) load<kCtas>(s, maps, rank);
  if (issuer) {
    barrier_wait(s.loaded(), 0);
    fence_after();
    for (int k = 0; k < 4; ++k) multiply<kCtas>(d, a + 2 * k, b + 2 * k, instruction(kRows, 128), k > 0);
    if (kCtas == 1) {
      const uint64_t ta = operand_across(s.across_a(), 8192);
      for (int k = 0; k < 4; ++k) multiply<1>(f, ta + 128 * k, tb + 128 * k, instruction(128, 128, true, true), k > 0);
    }
    tell<kCtas>(s.done(0));
  }
  if (warp < 4) {
    barrier_wait(s.done(0), 0);
    fence_after();
    for (int part = 0; part < 2; ++part) round_rows(d + 64 * part, rounded + 32 * part);
    store_wait();
    fence_before();
  }
  cluster_sync();
  if (issuer) {
    fence_after();
    for (int k = 0; k < 8; ++k) {
      multiply_tmem<kCtas>(e, rounded + 8 * k, tb + 128 * k, instruction(kRows, 128, false, true), k > 0);
    }
    tell<kCtas>(s.done(1));
  }
  if (warp < 4) {
    barrier_wait(s.done(1), 0);
    fence_after();
    write_rows(d, out);
    write_rows(e, out + kRows * 128);
    if (kCtas == 1) write_rows(f, out + 2 * kRows * 128);
  }
  end<kCtas>(d, warp);
}

__global__ void __launch_bounds__(160, 1) alone(const __grid_constant__ Operands maps, float* out) {
  products<1>(maps, out, 0);
}

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(160, 1)
    pair(const __grid_constant__ Operands maps, float* out) {
  products<2>(maps, out + cluster_rank() * 128 * 128, cluster_rank());
}

// x [256] -> y [4, 256]: x^2 + 1, x^2, x + 1, 2^x, two at a time.
__global__ void __launch_bounds__(128) pairs_of_floats(const float2* x, float2* y) {
  const float2 v = x[threadIdx.x], one = make_float2(1.f, 1.f);
  y[threadIdx.x] = fma2(v, v, one);
  y[128 + threadIdx.x] = mul2(v, v);
  y[256 + threadIdx.x] = add2(v, one);
  y[384 + threadIdx.x] = exp2_poly(v);
}

// Every CTA counts itself, and those that it takes over.
__global__ void __launch_bounds__(32) takers(float* counts) {
  __shared__ alignas(16) uint4 answer;
  __shared__ uint64_t barrier;
  const uint32_t at = shared_address(&answer), told = shared_address(&barrier);
  if (threadIdx.x == 0) {
    barrier_init(told, 1);
    barrier_fence();
    uint32_t parity = 0;
    for (int place = blockIdx.x; place >= 0; parity ^= 1) {
      barrier_expect(told, 16);
      cluster_ask(at, told);
      counts[place] += 1.f;
      barrier_wait(told, parity);
      place = cluster_answer(at);
      fence_async();
    }
  }
}

void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView matrix, tvm::ffi::TensorView heads,
         tvm::ffi::TensorView out, tvm::ffi::TensorView sums, tvm::ffi::TensorView runs, tvm::ffi::TensorView sent,
         tvm::ffi::TensorView added, tvm::ffi::TensorView words, tvm::ffi::TensorView ring, tvm::ffi::TensorView a,
         tvm::ffi::TensorView b, tvm::ffi::TensorView across_a, tvm::ffi::TensorView across_b,
         tvm::ffi::TensorView result, tvm::ffi::TensorView result_pair, tvm::ffi::TensorView floats,
         tvm::ffi::TensorView counts) {
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  const tvm::ffi::TensorView common[] = {x, y, matrix, heads, out, sums, runs, sent, added, words, ring};
  run_common(common, stream);
  const CUtensorMap map_a = matrix_map(a.data_ptr(), 256, 64, 128);
  const CUtensorMap map_ta = matrix_map(across_a.data_ptr(), 64, 128, 64);
  const CUtensorMap map_tb = matrix_map(across_b.data_ptr(), 128, 128, 128);
  const Operands maps{map_a, matrix_map(b.data_ptr(), 128, 64, 128), map_ta, map_tb};
  const Operands halves{map_a, matrix_map(b.data_ptr(), 128, 64, 64), map_ta, map_tb};
  check(cudaFuncSetAttribute(alone, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared), "shared memory");
  check(cudaFuncSetAttribute(pair, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared), "shared memory");
  alone<<<1, 160, kShared, stream>>>(maps, Floats(result).data);
  pair<<<2, 160, kShared, stream>>>(halves, Floats(result_pair).data);
  pairs_of_floats<<<1, 128, 0, stream>>>(static_cast<const float2*>(x.data_ptr()),
                                         static_cast<float2*>(floats.data_ptr()));
  takers<<<5, 32, 0, stream>>>(Floats(counts).data);
  check(cudaGetLastError(), "products");
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
