// Kernels put together from the blocks of the Hopper patterns; this text stands behind them in one compilation.

struct Matrices {
  CUtensorMap a, b, c;
};

// One tile of 128 x 256, a producer and two consumer warpgroups, as "gemm_pipeline" has it.
__global__ void __launch_bounds__(384, 1) pipeline(const __grid_constant__ Matrices maps, int slices) {
  extern __shared__ uint8_t raw[];
  const gemm_pipeline_0::Stage s{aligned_shared(raw)};
  const int warp = warp_index();
  if (threadIdx.x == 0) {
    for (int i = 0; i < 4; ++i) barrier_init(s.full(i), 1), barrier_init(s.empty(i), 8);
    barrier_fence();
  }
  __syncthreads();
  if (warp < 4) {
    lower_registers<40>();
    if (threadIdx.x == 0) gemm_pipeline_0::produce(s, &maps.a, &maps.b, 0, 0, slices);
  } else {
    raise_registers<232>();
    const int group = warp / 4 - 1;
    float d[128];
    gemm_pipeline_0::consume(s, d, group, slices);
    gemm_pipeline_1::store_tile(d, s.base + 4 * 49152 + 1024 + group * 16384, &maps.c, group * 64, 0, group);
    if (threadIdx.x % 128 == 0) tma_wait<0>();
  }
}

// The same by a cluster of two along M, whose halves of B are multicast; C is written from registers.
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
    cluster(const __grid_constant__ Matrices maps, float* c, int slices) {
  extern __shared__ uint8_t raw[];
  const uint32_t a = aligned_shared(raw), b = a + 16384, full = a + 4 * 49152, empty = full + 32;
  const int warp = warp_index(), row = blockIdx.x * 128;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 4; ++i) barrier_init(full + i * 8, 1), barrier_init(empty + i * 8, 16);
    barrier_fence();
  }
  cluster_sync();
  if (warp == 0 && threadIdx.x == 0) {
    gemm_cluster_0::produce_shared(a, b, full, empty, &maps.a, &maps.b, row, 0, slices);
  }
  if (warp >= 4) {
    const int group = warp / 4 - 1;
    float d[128];
    Ring<4> ring;
    for (int k = 0; k < slices; ++k, ring.next()) {
      barrier_wait(full + ring.place * 8, ring.parity);
      wgmma_fence();
      for (int i = 0; i < 4; ++i) {
        wgmma(d, operand(a + ring.place * 49152 + group * 8192) + 2 * i, operand(b + ring.place * 49152) + 2 * i,
              k > 0 || i > 0);
      }
      wgmma_commit();
      wgmma_wait<0>(d);
      gemm_cluster_0::give_back(empty + ring.place * 8);
    }
    for (int i = 0; i < 128; ++i) c[(row + group * 64 + row_of(i)) * 256 + col_of(i)] = d[i];
  }
  cluster_sync();
}

struct Heads {
  CUtensorMap q, k, v, grad;
};

// One warpgroup, 64 queries of one head, blocks of 128 keys: the loop of "attention_overlap" with the softmax of
// "attention_forward". O and LSE as floats; both operands of all blocks lie in shared memory.
template <int kBlocks>
__global__ void __launch_bounds__(128, 1)
    forward(const __grid_constant__ Heads maps, float* out, float* lse, int keys, bool causal) {
  extern __shared__ uint8_t raw[];
  const uint32_t q = aligned_shared(raw), k = q + 16384, v = k + kBlocks * 32768, full = v + kBlocks * 32768;
  if (threadIdx.x == 0) {
    barrier_init(full, 1);
    barrier_fence();
    barrier_expect(full, 16384 + kBlocks * 65536);
    tma_load(q, &maps.q, full, 0, blockIdx.x * 64, 0, 0);
    for (int i = 0; i < kBlocks; ++i) {
      tma_load(k + i * 32768, &maps.k, full, 0, i * 128, 0, 0);
      tma_load(v + i * 32768, &maps.v, full, 0, i * 128, 0, 0);
    }
  }
  __syncthreads();
  barrier_wait(full, 0);
  const float scale = 0.08838834764831845f * 1.4426950408889634f;
  float x[64], o[64], top[2], sum[2];
  uint32_t p[32];
  const auto first = [&](float (&d)[64], float (&shrink)[2]) {
    attention_forward_0::hide(d, blockIdx.x * 64, (kBlocks - 1) * 128, keys, causal);
    attention_forward_0::softmax<true>(d, top, sum, shrink, scale);
  };
  const auto further = [&](float (&d)[64], float (&shrink)[2]) {
    attention_forward_0::softmax<false>(d, top, sum, shrink, scale);
  };
  attention_overlap_0::advance<false>(x, o, p, q, k + (kBlocks - 1) * 32768, v, first);
#pragma unroll
  for (int i = kBlocks - 2; i >= 0; --i) {
    attention_overlap_0::advance<true>(x, o, p, q, k + i * 32768, v + (i + 1) * 32768, further);
  }
  wgmma_0::add_output(o, p, v);
  wgmma_wait<0>(o);
  for (int h = 0; h < 2; ++h) sum[h] = quad_sum(sum[h]);
  for (int i = 0; i < 64; ++i) out[(blockIdx.x * 64 + row_of(i)) * 128 + col_of(i)] = o[i] / sum[i / 2 % 2];
  for (int i = 0; i < 4; i += 2) {
    lse[blockIdx.x * 64 + row_of(i)] = (top[i / 2] * scale + __log2f(sum[i / 2])) * 0.6931471805599453f;
  }
}

// 64 keys and 64 queries of one head: dK, dV and dQ as the two patterns of the backward pass have them. `numbers` are
// -LSE log2(e) and -delta / sqrt(128) of the queries; dS is handed on through memory.
__global__ void __launch_bounds__(128, 1)
    backward(const __grid_constant__ Heads maps, const float* numbers, float* dk, float* dv, float* dq,
             uint8_t* piece) {
  extern __shared__ uint8_t raw[];
  const uint32_t k = aligned_shared(raw), v = k + 16384, q = v + 16384, grad = q + 16384, ds = grad + 16384;
  const uint32_t lse = ds + 8192, full = lse + 512;
  if (threadIdx.x == 0) {
    barrier_init(full, 1);
    barrier_fence();
    barrier_expect(full, 4 * 16384 + 512);
    tma_load(k, &maps.k, full, 0, 0, 0, 0);
    tma_load(v, &maps.v, full, 0, 0, 0, 0);
    tma_load(q, &maps.q, full, 0, 0, 0, 0);
    tma_load(grad, &maps.grad, full, 0, 0, 0, 0);
    bulk_load(lse, numbers, full, 512);
  }
  __syncthreads();
  barrier_wait(full, 0);
  constexpr float kRoot = 0.08838834764831845f;
  float x[32], y[32], d[64], e[64];
  uint32_t p[16], w[16];
  backward_two_kernels_0::start_rows(x, k, q);
  backward_two_kernels_0::start_rows(y, v, grad);
  wgmma_wait<1>(x);
  backward_two_kernels_0::probabilities(x, p, lse, kRoot * 1.4426950408889634f);
  backward_two_kernels_0::start_sum(e, p, grad, false);
  wgmma_wait<1>(y);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 n = *static_cast<const float2*>(__cvta_shared_to_generic(lse + 256 + j * 32 + threadIdx.x % 4 * 8));
    float f[4];
    for (int i = 0; i < 4; ++i) f[i] = x[4 * j + i] * fmaf(y[4 * j + i], kRoot, i % 2 ? n.y : n.x);
    for (int i = 0; i < 2; ++i) w[2 * j + i] = pack(f[2 * i], f[2 * i + 1]);
  }
  backward_one_kernel_0::share(w, ds);
  backward_two_kernels_0::start_sum(d, w, q, false);
  backward_one_kernel_0::send(piece, ds, 0);
  wgmma_wait<0>(d);
  wgmma_wait<0>(e);
  for (int i = 0; i < 64; ++i) dk[row_of(i) * 128 + col_of(i)] = d[i], dv[row_of(i) * 128 + col_of(i)] = e[i];
  if (threadIdx.x == 0) {
    tma_wait<0>();
    fence_async_all();
    barrier_expect(full, 8192);
    bulk_load(ds, piece, full, 8192);
  }
  barrier_wait(full, 1);
  backward_one_kernel_0::add_queries(d, ds, k, false);
  wgmma_wait<0>(d);
  for (int i = 0; i < 64; ++i) dq[row_of(i) * 128 + col_of(i)] = d[i];
}

// Tiles of a 10 x 3 grid drawn by three CTAs, each counted at its place.
__global__ void __launch_bounds__(32) drawn(float* counts) {
  if (threadIdx.x > 0) return;
  for (int t = persistent_1::draw(30); t >= 0; t = persistent_1::draw(30)) {
    const persistent_0::Place place = persistent_0::place_of(t, 10, 3);
    counts[place.row * 3 + place.col] += 1.f;
  }
}

// Three tiles of four slices, whose numbers are summed by two CTAs of six slices each; the middle tile is shared.
__global__ void __launch_bounds__(32) streamed(float* sums, float* parts, unsigned* counters) {
  const int first = blockIdx.x * 6, last = first + 6;
  for (int at = first; at < last;) {
    const persistent_2::Run run = persistent_2::part_of(at, last, 4);
    float sum = 0.f;
    for (int i = run.begin; i < run.end; ++i) sum += run.tile * 4 + i + threadIdx.x;
    if (run.begin > 0) {
      parts[run.tile * 32 + threadIdx.x] = sum;
      persistent_2::tell_owner(counters, run.tile);
    } else {
      if (run.end < 4) {
        persistent_2::wait_for(counters, run.tile, 1);
        sum += parts[run.tile * 32 + threadIdx.x];
      }
      sums[run.tile * 32 + threadIdx.x] = sum;
    }
    at += run.end - run.begin;
  }
}

void run_schedules(tvm::ffi::TensorView counts, tvm::ffi::TensorView sums) {
  host_0::launch(drawn, 3, 32, 1, 0, nullptr, static_cast<float*>(counts.data_ptr()));
  host_0::launch(drawn, 2, 32, 1, 0, nullptr, static_cast<float*>(counts.data_ptr()));
  float* parts = static_cast<float*>(host_0::workspace(1024, counts.device().device_id, nullptr));
  check(cudaMemsetAsync(parts, 0, 1024, nullptr), "counters");
  host_0::launch(streamed, 2, 32, 1, 0, nullptr, static_cast<float*>(sums.data_ptr()), parts,
                 reinterpret_cast<unsigned*>(parts + 96));
  check(cudaFreeAsync(parts, nullptr), "workspace");
}

void run_products(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView c, tvm::ffi::TensorView wide) {
  constexpr int kShared = 4 * 49152 + 2048 + 32768;
  const int m = a.size(0), k = a.size(1);
  const Matrices maps{matrix_map(a.data_ptr(), m, k, 128), matrix_map(b.data_ptr(), 256, k, 256),
                      matrix_map(c.data_ptr(), c.size(0), 256, 64)};
  const Matrices halves{maps.a, matrix_map(b.data_ptr(), 256, k, 128), maps.c};
  host_0::launch(pipeline, 1, 384, 1, kShared, nullptr, maps, k / 64);
  host_0::launch(cluster, 2, 384, 2, kShared, nullptr, halves, static_cast<float*>(wide.data_ptr()), k / 64);
}

void run_attention(tvm::ffi::TensorView q, tvm::ffi::TensorView k, tvm::ffi::TensorView v, tvm::ffi::TensorView grad,
                   tvm::ffi::TensorView numbers, tvm::ffi::TensorView out, tvm::ffi::TensorView lse,
                   tvm::ffi::TensorView diagonal, tvm::ffi::TensorView dk, tvm::ffi::TensorView dv,
                   tvm::ffi::TensorView dq) {
  const auto floats = [](const tvm::ffi::TensorView& x) { return static_cast<float*>(x.data_ptr()); };
  const auto map = [](const tvm::ffi::TensorView& x, uint32_t rows) {
    return head_map(x.data_ptr(), 1, x.size(0), rows);
  };
  const Heads wide{map(q, 64), map(k, 128), map(v, 128), map(grad, 64)};
  const Heads small{map(q, 64), map(k, 64), map(v, 64), map(grad, 64)};
  host_0::launch(forward<2>, 1, 128, 1, 16384 + 2 * 65536 + 2048, nullptr, wide, floats(out), floats(lse),
                 (int)k.size(0), false);
  host_0::launch(forward<1>, 2, 128, 1, 16384 + 65536 + 2048, nullptr, wide, floats(diagonal), floats(lse) + 64, 128,
                 true);
  void* room = host_0::workspace(8192, q.device().device_id, nullptr);
  host_0::launch(backward, 1, 128, 1, 4 * 16384 + 8192 + 2048, nullptr, small, floats(numbers), floats(dk), floats(dv),
                 floats(dq), static_cast<uint8_t*>(room));
  check(cudaFreeAsync(room, nullptr), "workspace");
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run_schedules, run_schedules);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run_products, run_products);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run_attention, run_attention);
