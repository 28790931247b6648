// Kernels put together from the blocks of the Blackwell patterns; this text stands behind them in one compilation.

struct Matrices {
  CUtensorMap a, b, c;
};

// Two tiles of 128 x 256 by one CTA, as "gemm_pipeline" has it.
__global__ void __launch_bounds__(256, 1) pipeline(const __grid_constant__ Matrices maps, int slices) {
  extern __shared__ uint8_t raw[];
  gemm_pipeline_0::Rooms s{aligned_shared(raw), 0};
  const uint32_t slot = s.taken(2);
  const int warp = warp_index();
  if (warp == 0 && elected()) {
    for (int i = 0; i < 4; ++i) barrier_init(s.full(i), 1), barrier_init(s.empty(i), 1);
    for (int i = 0; i < 2; ++i) barrier_init(s.ready(i), 1), barrier_init(s.taken(i), 4);
    barrier_fence();
  }
  s.columns = tcgen05_0::start(slot, warp);
  if (warp == 0 && elected()) {
    Ring<4> ring;
    for (int k = 0; k < 2 * slices; ++k, ring.next()) {
      barrier_wait(s.empty(ring.place), ring.parity ^ 1);
      barrier_expect(s.full(ring.place), 49152);
      tma_load(s.a(ring.place), &maps.a, s.full(ring.place), k % slices * 64, 0);
      tma_load(s.b(ring.place), &maps.b, s.full(ring.place), k % slices * 64, k / slices * 256);
    }
  } else if (warp == 1 && elected()) {
    gemm_pipeline_0::multiply_tiles(s, 2, slices);
  } else if (warp >= 4) {
    Ring<2> in;
    for (int t = 0; t < 2; ++t) gemm_pipeline_0::store_tile(s, &maps.c, 0, t * 256, in);
    if (threadIdx.x == 128) tma_wait<0>();
  }
  tcgen05_0::finish(s.columns, warp);
}

// One tile of 256 x 256 by a pair, as "gemm_pair" has it; C is written from registers.
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(256, 1)
    pair(const __grid_constant__ Matrices maps, float* c, int slices) {
  extern __shared__ uint8_t raw[];
  const uint32_t stages = aligned_shared(raw), full = stages + 6 * 32768, empty = full + 48, ready = empty + 48;
  const uint32_t taken = ready + 8, slot = taken + 8;
  const int warp = warp_index(), rank = cluster_rank();
  if (warp == 0 && elected()) {
    for (int i = 0; i < 6; ++i) barrier_init(full + i * 8, 1), barrier_init(empty + i * 8, 1);
    barrier_init(ready, 1);
    barrier_init(taken, 8);
    barrier_fence();
  }
  if (warp == 2) tmem_alloc<2>(slot, 256);
  fence_before();
  cluster_sync();
  fence_after();
  const uint32_t d = tmem_address(slot);
  if (warp == 0 && elected()) gemm_pair_0::load_pair(stages, full, empty, &maps.a, &maps.b, 0, 0, slices);
  if (warp == 1 && rank == 0 && elected()) {
    gemm_pair_0::multiply_pair(d, stages, full, empty, ready, slices);
    barrier_wait(taken, 0);  // as before a next tile
  }
  if (warp >= 4) {
    barrier_wait(ready, 0);
    fence_after();
    for (int part = 0; part < 256; part += 32) {
      uint32_t v[32];
      load_row(v, own_lanes(d) + part);
      if (part == 224) gemm_pair_0::give_back(taken);
      for (int i = 0; i < 32; ++i) c[(rank * 128 + threadIdx.x % 128) * 256 + part + i] = __uint_as_float(v[i]);
    }
  }
  fence_before();
  cluster_sync();
  if (warp == 2) {
    fence_after();
    tmem_free<2>(d, 256);
  }
}

struct Heads {
  CUtensorMap q, k, v, grad;
};

// 128 queries and two blocks of 128 keys: products of "attention_forward", rescaling, and the exponentials of
// "attention_exponentials". A thread of the first four warps has a row.
__global__ void __launch_bounds__(160, 1) forward(const __grid_constant__ Heads maps, float* out, float* lse) {
  extern __shared__ uint8_t raw[];
  const uint32_t q = aligned_shared(raw), k = q + 32768, v = k + 65536, full = v + 65536, slot = full + 64;
  const int warp = warp_index();
  if (threadIdx.x == 128) {
    for (int i = 0; i < 5; ++i) barrier_init(full + i * 8, i == 2 || i == 3 ? 4 : 1);
    barrier_fence();
    barrier_expect(full, 5 * 32768);
    tma_load(q, &maps.q, full, 0, 0, 0, 0);
    for (int i = 0; i < 2; ++i) {
      tma_load(k + i * 32768, &maps.k, full, 0, i * 128, 0, 0);
      tma_load(v + i * 32768, &maps.v, full, 0, i * 128, 0, 0);
    }
  }
  const uint32_t columns = tcgen05_0::start(slot, warp);
  const attention_forward_0::Tile t{full + 8, full + 16, full + 24, full + 32, columns, columns + 256};
  if (threadIdx.x == 128) {
    barrier_wait(full, 0);
    for (int i = 0; i < 2; ++i) {
      attention_forward_0::start_scores(t, q, k + i * 32768, i);
      attention_forward_0::start_output(t, v + i * 32768, i, i == 0);
    }
  }
  if (warp < 4) {
    const float scale = 0.08838834764831845f * 1.4426950408889634f;
    float top = -INFINITY;
    float2 sum = make_float2(0.f, 0.f);
    for (int i = 0; i < 2; ++i) {
      uint32_t x[2][64], part[32], p[32];
      barrier_wait(t.scored, i);
      fence_after();
      for (int h = 0; h < 2; ++h) load_row(x[h], own_lanes(columns) + 64 * h);
      using attention_exponentials_0::highest;
      const float high = fmaxf(highest(x[0]), highest(x[1])) * scale;
      const float factor = high > top ? exp2_approx(top - high) : 1.f;
      top = fmaxf(top, high);
      sum = mul2(sum, make_float2(factor, factor));
      for (int h = 0; h < 2; ++h) {
        for (int half = 0; half < 2; ++half) {
          uint32_t words[16];
          for (int j = 0; j < 32; ++j) part[j] = x[h][half * 32 + j];
          attention_exponentials_0::powers(part, words, make_float2(scale, scale), make_float2(-top, -top), sum);
          for (int j = 0; j < 16; ++j) p[half * 16 + j] = words[j];
        }
        store_row(own_lanes(columns) + 64 + 32 * h, p);
      }
      store_wait();
      fence_before();
      if (i > 0) {
        barrier_wait(t.output, i - 1);
        fence_after();
        attention_forward_1::rescale(own_lanes(t.sums), factor);
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(t.exponentiated), barrier_arrive(t.corrected);
    }
    barrier_wait(t.output, 1);
    fence_after();
    const float total = sum.x + sum.y;
    for (int part = 0; part < 128; part += 32) {
      uint32_t v[32];
      load_row(v, own_lanes(t.sums) + part);
      for (int i = 0; i < 32; ++i) out[threadIdx.x * 128 + part + i] = __uint_as_float(v[i]) / total;
    }
    lse[threadIdx.x] = (top + __log2f(total)) * 0.6931471805599453f;
  }
  tcgen05_0::finish(columns, warp);
}

// 128 queries and 128 keys: P from the block of "tcgen05" where the scores were, its output and sums as they are.
__global__ void __launch_bounds__(160, 1) simple(const __grid_constant__ Heads maps, float* out, float* sums) {
  extern __shared__ uint8_t raw[];
  const uint32_t q = aligned_shared(raw), k = q + 32768, v = k + 32768, full = v + 32768, done = full + 8;
  const uint32_t slot = full + 16;
  const int warp = warp_index();
  if (threadIdx.x == 128) {
    barrier_init(full, 1), barrier_init(done, 1);
    barrier_fence();
    tensor_maps_0::load_keys(q, &maps.q, full, 0, 0);
    barrier_wait(full, 0);
    barrier_expect(full, 65536);
    tma_load(k, &maps.k, full, 0, 0, 0, 0);
    tma_load(v, &maps.v, full, 0, 0, 0, 0);
    barrier_wait(full, 1);
  }
  const uint32_t s = tcgen05_0::start(slot, warp);
  if (threadIdx.x == 128) backward_one_cta_0::transposed(s, 0, q, k, done);
  if (warp < 4) {
    barrier_wait(done, 0);
    fence_after();
    sums[threadIdx.x] = tcgen05_1::exponentiate(s, s, 0.08838834764831845f * 1.4426950408889634f, 4.f);
    store_wait();
    fence_before();
  }
  __syncthreads();
  if (threadIdx.x == 128) {
    fence_after();
    tcgen05_1::add_output(s + 256, s, v, false);
    commit(done);
  }
  if (warp < 4) {
    barrier_wait(done, 1);
    fence_after();
    for (int part = 0; part < 128; part += 32) {
      uint32_t w[32];
      load_row(w, own_lanes(s + 256) + part);
      for (int i = 0; i < 32; ++i) out[threadIdx.x * 128 + part + i] = __uint_as_float(w[i]);
    }
  }
  tcgen05_0::finish(s, warp);
}

// 128 keys and 128 queries, as "backward_one_cta" has it. `numbers` are -LSE log2(e) and -delta / sqrt(128) of the
// queries.
__global__ void __launch_bounds__(288, 1)
    backward(const __grid_constant__ Heads maps, const float* numbers, float* dk, float* dv, float* dq,
             uint8_t* pieces) {
  extern __shared__ uint8_t raw[];
  const uint32_t k = aligned_shared(raw), v = k + 32768, q = v + 32768, grad = q + 32768, ds = grad + 32768;
  const uint32_t lse = ds + 32768, full = lse + 1024, done = full + 8, slot = done + 24;
  const int warp = warp_index(), group = warp / 4 % 2;
  if (threadIdx.x == 256) {
    for (int i = 0; i < 4; ++i) barrier_init(full + i * 8, 1);
    barrier_fence();
    barrier_expect(full, 4 * 32768 + 1024);
    tma_load(k, &maps.k, full, 0, 0, 0, 0);
    tma_load(v, &maps.v, full, 0, 0, 0, 0);
    tma_load(q, &maps.q, full, 0, 0, 0, 0);
    tma_load(grad, &maps.grad, full, 0, 0, 0, 0);
    bulk_load(lse, numbers, full, 1024);
  }
  const uint32_t columns = tcgen05_0::start(slot, warp);
  barrier_wait(full, 0);
  if (threadIdx.x == 256) {
    backward_one_cta_0::transposed(columns, 0, k, q, done);
    backward_one_cta_0::transposed(columns, 1, v, grad, done + 8);
  }
  if (warp < 8) {
    const float2* vectors = static_cast<const float2*>(__cvta_shared_to_generic(lse)) + group * 32;
    float2 p[32];
    uint32_t packed[32];
    barrier_wait(done, 0);
    fence_after();
    const uint32_t place = own_lanes(columns) + group * 64;
    backward_one_cta_0::exponentiate(place, vectors, 0.08838834764831845f * 1.4426950408889634f, p);
    barrier_wait(done + 8, 0);
    fence_after();
    backward_one_cta_0::differentiate(place + 128, vectors + 64, 0.08838834764831845f, p, packed);
    backward_one_cta_0::send(packed, pieces + group * 16384);
    fence_async_all();
  }
  __syncthreads();
  if (threadIdx.x == 256) {
    fence_after();
    fence_async_all();
    barrier_expect(full, 32768);
    bulk_load(ds, pieces, full, 32768);
    barrier_wait(full, 1);
    backward_one_cta_0::add(columns, 0, grad, done, false);
    backward_one_cta_0::add(columns, 1, q, done + 8, false);
    barrier_wait(done, 1);  // P is used up: dQ takes its columns
    fence_after();
    backward_one_cta_1::add_queries(columns, ds, k, false);
    commit(done + 16);
  }
  if (warp < 4) {
    barrier_wait(done + 8, 1);
    barrier_wait(done + 16, 0);
    fence_after();
    for (int part = 0; part < 128; part += 32) {
      uint32_t x[3][32];
      for (int i = 0; i < 3; ++i) load_row(x[i], own_lanes(columns) + (i == 2 ? 0 : 256 + 128 * i) + part);
      for (int i = 0; i < 32; ++i) {
        const int at = threadIdx.x * 128 + part + i;
        dv[at] = __uint_as_float(x[0][i]), dk[at] = __uint_as_float(x[1][i]), dq[at] = __uint_as_float(x[2][i]);
      }
    }
  }
  tcgen05_0::finish(columns, warp);
}

// The halves of dS^T that two CTAs exchange, as "backward_pair" has it: what each one gets is written.
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(64, 1) exchanged(float* out) {
  extern __shared__ uint8_t raw[];
  const uint32_t own = aligned_shared(raw), got = own + 16384, arrived = got + 16384, room = arrived + 8;
  const uint32_t both = room + 8;
  const int warp = warp_index(), rank = cluster_rank();
  if (threadIdx.x == 0) {
    barrier_init(arrived, 1), barrier_init(room, 1), barrier_init(both, 2);
    barrier_fence();
  }
  cluster_sync();
  for (uint32_t i = threadIdx.x; i < 1024; i += 64) store_shared(own + i * 16, rank, i, 0, 0);
  fence_async();
  __syncthreads();
  if (threadIdx.x == 0) backward_pair_0::exchange(own, got, arrived, room, 0);
  if (threadIdx.x == 32) {
    backward_pair_0::pass_on(arrived, both, 0);
    if (rank == 0) barrier_wait(both, 0);
  }
  __syncthreads();
  if (warp == 0) {
    const uint4 line = load_shared(got + threadIdx.x * 512);
    out[rank * 32 + threadIdx.x] = line.x * 1000.f + line.y;
  }
  cluster_sync();
}

void run_products(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView c, tvm::ffi::TensorView wide,
                  tvm::ffi::TensorView halves) {
  constexpr int kShared = 4 * 49152 + 32768 + 2048;
  const int m = a.size(0), k = a.size(1);
  const CUtensorMap map_a = matrix_map(a.data_ptr(), m, k, 128);
  const Matrices maps{map_a, matrix_map(b.data_ptr(), 512, k, 256), matrix_map(c.data_ptr(), c.size(0), 512, 128)};
  const Matrices split{map_a, matrix_map(b.data_ptr(), 256, k, 128), maps.c};
  host_0::launch(pipeline, 1, 256, 1, kShared, nullptr, maps, k / 64);
  host_0::launch(pair, 2, 256, 2, kShared, nullptr, split, static_cast<float*>(wide.data_ptr()), k / 64);
  host_0::launch(exchanged, 2, 64, 2, 36864, nullptr, static_cast<float*>(halves.data_ptr()));
}

void run_attention(tvm::ffi::TensorView q, tvm::ffi::TensorView k, tvm::ffi::TensorView v, tvm::ffi::TensorView grad,
                   tvm::ffi::TensorView numbers, tvm::ffi::TensorView out, tvm::ffi::TensorView lse,
                   tvm::ffi::TensorView first, tvm::ffi::TensorView sums, tvm::ffi::TensorView dk,
                   tvm::ffi::TensorView dv, tvm::ffi::TensorView dq) {
  const auto floats = [](const tvm::ffi::TensorView& x) { return static_cast<float*>(x.data_ptr()); };
  const auto map = [](const tvm::ffi::TensorView& x) { return head_map(x.data_ptr(), 1, x.size(0), 128); };
  const Heads maps{map(q), map(k), map(v), map(grad)};
  host_0::launch(forward, 1, 160, 1, 5 * 32768 + 2048, nullptr, maps, floats(out), floats(lse));
  host_0::launch(simple, 1, 160, 1, 3 * 32768 + 2048, nullptr, maps, floats(first), floats(sums));
  void* room = host_0::workspace(32768, q.device().device_id, nullptr);
  host_0::launch(backward, 1, 288, 1, 5 * 32768 + 4096, nullptr, maps, floats(numbers), floats(dk), floats(dv),
                 floats(dq), static_cast<uint8_t*>(room));
  check(cudaFreeAsync(room, nullptr), "workspace");
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run_products, run_products);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run_attention, run_attention);
