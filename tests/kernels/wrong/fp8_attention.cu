// Wrong: attention forward (not causal) whose P and V are rounded to FP8 (e4m3) before their product, which the
// contract on precision must notice. Everything else is an honest bf16 kernel by mma.sync.
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <cmath>
#include <cstdint>

namespace {

using bf16 = __nv_bfloat16;
constexpr bool kCausal = false;
constexpr int kD = 128, kRows = 64, kThreads = 128;  // a CTA owns 64 queries and walks over tiles of 64 keys
constexpr int kBytes = kRows * kD * 2;               // one tile of Q, K or V
constexpr int kSharedBytes = 5 * kBytes;             // Q, and two stages of K and V
constexpr float kScale = 0.08838834764831845f;       // 1 / sqrt(128)
constexpr float kLog2e = 1.4426950408889634f;

// Byte offset of 16-byte chunk `chunk` of row `row`; the xor keeps ldmatrix free of bank conflicts.
__device__ __forceinline__ uint32_t place(int row, int chunk) { return row * 256 + ((chunk ^ (row & 7)) << 4); }

// Copies 64 rows; rows from `rows` on become zero.
__device__ __forceinline__ void load_tile(uint32_t dst, const bf16* src, int rows) {
  for (int i = threadIdx.x; i < kRows * 16; i += kThreads) {
    const int row = i / 16, chunk = i % 16;
    const bool inside = row < rows;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst + place(row, chunk)),
                 "l"(src + (inside ? row * kD : 0) + chunk * 8), "r"(inside ? 16 : 0)
                 : "memory");
  }
}

__device__ __forceinline__ void ldmatrix(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void ldmatrix_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// The two values as FP8 (e4m3) would hold them, as bf16.
__device__ __forceinline__ uint32_t pack_fp8(float low, float high) {
  return pack(float(__nv_fp8_e4m3(low)), float(__nv_fp8_e4m3(high)));
}

__device__ __forceinline__ float exp2_approx(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// scores (16 queries of this warp x 64 keys) = Q K^T
__device__ __forceinline__ void multiply_qk(float (&s)[8][4], uint32_t q, uint32_t k) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int d = 0; d < kD / 16; ++d) {
    uint32_t a[4], b[4];
    ldmatrix(a, q + place(warp * 16 + lane % 16, d * 2 + lane / 16));
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      ldmatrix(b, k + place(j * 16 + lane % 8 + lane / 16 * 8, d * 2 + lane / 8 % 2));
      mma(s[2 * j], a, b[0], b[1]);
      mma(s[2 * j + 1], a, b[2], b[3]);
    }
  }
}

__device__ __forceinline__ void hide(float (&s)[8][4], int first_row, int first_key, int length) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int key = first_key + i / 4 * 8 + lane % 4 * 2 + i % 2, row = first_row + lane / 4 + i % 4 / 2 * 8;
    if (key >= length || (kCausal && key > row)) s[i / 4][i % 4] = -INFINITY;
  }
}

// Two rows per thread: the largest score so far, the sum of exponentials below it, and 16 x 128 outputs per warp.
struct Softmax {
  float largest[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.f, 0.f};
  float out[16][4] = {};

  // Turns scores into weights relative to the new maximum and rescales what was summed before.
  __device__ __forceinline__ void update(float (&s)[8][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float best = largest[half];
#pragma unroll
      for (int j = 0; j < 8; ++j) best = fmaxf(best, fmaxf(s[j][half * 2], s[j][half * 2 + 1]));
      best = fmaxf(best, __shfl_xor_sync(0xffffffff, best, 1));
      best = fmaxf(best, __shfl_xor_sync(0xffffffff, best, 2));
      const float shift = best * (kScale * kLog2e);
      const float shrink = exp2_approx(largest[half] * (kScale * kLog2e) - shift);
      largest[half] = best;
      float part = 0.f;  // summed apart, so that the rounding of a long sum does not grow with every key
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        float& weight = s[j / 2][half * 2 + j % 2];
        weight = exp2_approx(weight * (kScale * kLog2e) - shift);
        part += weight;
      }
      sum[half] = sum[half] * shrink + part;
#pragma unroll
      for (int j = 0; j < 32; ++j) out[j / 2][half * 2 + j % 2] *= shrink;
    }
  }

  // out += P V, with P and V rounded to FP8; an accumulator fragment is an operand fragment already.
  __device__ __forceinline__ void multiply_pv(const float (&p)[8][4], uint32_t v) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float *x = p[2 * k], *y = p[2 * k + 1];
      const uint32_t a[4] = {pack_fp8(x[0], x[1]), pack_fp8(x[2], x[3]),
                             pack_fp8(y[0], y[1]), pack_fp8(y[2], y[3])};
#pragma unroll
      for (int d = 0; d < kD / 16; ++d) {
        uint32_t b[4];
        ldmatrix_transposed(b, v + place(k * 16 + lane % 16, d * 2 + lane / 16));
        for (uint32_t& pair : b) pair = pack_fp8(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000));
        mma(out[2 * d], a, b[0], b[1]);
        mma(out[2 * d + 1], a, b[2], b[3]);
      }
    }
  }

  __device__ __forceinline__ void store(bf16* o, float* lse, int first_row, int length) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + lane / 4 + half * 8;
      float total = sum[half] + __shfl_xor_sync(0xffffffff, sum[half], 1);
      total += __shfl_xor_sync(0xffffffff, total, 2);
      if (row >= length) continue;
      if (lane % 4 == 0) lse[row] = largest[half] * kScale + logf(total);
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        *reinterpret_cast<uint32_t*>(o + (size_t)row * kD + j * 8 + lane % 4 * 2) =
            pack(out[j][half * 2] / total, out[j][half * 2 + 1] / total);
      }
    }
  }
};

__global__ void __launch_bounds__(kThreads) attention(const bf16* q, const bf16* k, const bf16* v, bf16* o, float* lse,
                                                      int length) {
  extern __shared__ __align__(128) uint8_t shared[];
  const uint32_t base = (uint32_t)__cvta_generic_to_shared(shared);
  const int tile = gridDim.x - 1 - blockIdx.x;  // the longest causal rows first
  const int first_query = tile * kRows, first_row = first_query + threadIdx.x / 32 * 16;
  const size_t head = (size_t)blockIdx.y * length * kD;
  const int tiles = (kCausal ? min(first_query + kRows, length) + kRows - 1 : length + kRows - 1) / kRows;
  auto stage = [&](int j) { return base + kBytes + j % 2 * 2 * kBytes; };
  auto fetch = [&](int j) {
    if (j < tiles) {
      load_tile(stage(j), k + head + (size_t)j * kRows * kD, length - j * kRows);
      load_tile(stage(j) + kBytes, v + head + (size_t)j * kRows * kD, length - j * kRows);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };

  Softmax softmax;
  load_tile(base, q + head + (size_t)first_query * kD, length - first_query);
  fetch(0);
  for (int j = 0; j < tiles; ++j) {
    fetch(j + 1);
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    float s[8][4] = {};
    multiply_qk(s, base, stage(j));
    if ((j + 1) * kRows > (kCausal ? min(first_row, length) : length)) hide(s, first_row, j * kRows, length);
    softmax.update(s);
    softmax.multiply_pv(s, stage(j) + kBytes);
    __syncthreads();  // all have read this stage before it is filled again
  }
  softmax.store(o + head, lse + (size_t)blockIdx.y * length, first_row, length);
}

}  // namespace

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  const int heads = Q.size(0) * Q.size(1), length = Q.size(2);
  TVM_FFI_ICHECK(Q.size(3) == kD) << "the head size must be 128";
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  cudaFuncSetAttribute(attention, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  attention<<<dim3((length + kRows - 1) / kRows, heads), kThreads, kSharedBytes, stream>>>(
      static_cast<const bf16*>(Q.data_ptr()), static_cast<const bf16*>(K.data_ptr()),
      static_cast<const bf16*>(V.data_ptr()), static_cast<bf16*>(O.data_ptr()), static_cast<float*>(LSE.data_ptr()),
      length);
  TVM_FFI_ICHECK(cudaGetLastError() == cudaSuccess) << "launch failed";
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
