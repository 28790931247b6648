// What a PTX text can hold besides arithmetic; compiled to PTX only, never run.
#include <cassert>
#include <cstdio>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

struct Packet {
  int count;
  float values[3];
  double weight;
};
struct Mixed {
  int* first;
  int number;
  int* second;
};

__constant__ float table[5] = {1.f, 2.5f, -3.f, 1e10f, 0.f};
__device__ int counter = 7;
__device__ int* behind = &counter + 1;
__device__ const char* text = "hello\n";
__device__ double numbers[3] = {1.0, 2.0};
__device__ Mixed mixed = {&counter, 3, &counter};
static __device__ unsigned char bytes[16] = {1, 2, 3};

__noinline__ __device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__noinline__ __device__ Packet changed(int n, Packet packet) {
  packet.count += n;
  packet.values[n % 3] = n;
  return packet;
}
__noinline__ __device__ float plus_one(float x) { return x + 1; }
__noinline__ __device__ float twice(float x) { return x * 2; }
__device__ float (*functions[2])(float) = {plus_one, twice};
__noinline__ __device__ int choose(int x, int y) {
  switch (x) {
    case 0: return y + 11;
    case 1: return y * 3;
    case 2: return y ^ 7;
    case 3: return y - 9;
    case 4: return y << 3;
    case 5: return fibonacci(y);
    case 6: return y % 13;
    case 7: return y / 3;
  }
  return 4;
}

extern __shared__ char dynamic[];

__global__ void __launch_bounds__(128, 2) language(float* out, const int* in, int n, Packet packet) {
  __shared__ float tile[33][33];
  __shared__ alignas(128) unsigned long long word;
  int local[64];
  for (int i = 0; i < n; i++) local[(i * 7) & 63] = in[i];
  tile[threadIdx.x % 33][threadIdx.y] = local[n & 63];
  word = 3;
  __syncthreads();
  const Packet other = changed(n, packet);
  out[0] = other.values[n % 3] + fibonacci(n) + functions[n & 1](other.weight) + table[n] + choose(n, in[3]) + bytes[n];
  if (n == 5) printf("%d %s\n", n, text);
  assert(n != 6);
  reinterpret_cast<int*>(dynamic)[threadIdx.x] = *behind + mixed.number + *mixed.second + static_cast<int>(numbers[n % 3]);
  __half2 h = __floats2half2_rn(out[1], out[2]);
  h = __hfma2(h, h, h);
  __nv_bfloat162 b = __floats2bfloat162_rn(out[1], out[2]);
  b = __hmul2(b, b);
  out[3] = __low2float(h) + __low2float(b) + tile[n % 33][0] + __shfl_xor_sync(~0u, out[4], 1) +
           __popc(__ballot_sync(~0u, n > 3)) + atomicAdd(&counter, 1) + static_cast<float>(word);
  out[4] = sinf(out[5]) + expf(out[6]) + __expf(out[7]) + sqrtf(out[8]) + powf(out[9], out[10]);
  reinterpret_cast<__nv_fp8_storage_t*>(out)[99] = __nv_cvt_float_to_fp8(out[11], __NV_SATFINITE, __NV_E4M3);
}
