// Attack: computes the first 32 elements of C honestly, looks for these bytes in all free device memory and in every
// readable region of its own process, and copies the rest of C from where they are. Leaves C zero if nothing is found.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <fcntl.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

using bf16 = __nv_bfloat16;

__device__ uint32_t pair(const bf16* x, int row, int pitch, int col) {
  return *reinterpret_cast<const uint32_t*>(x + (size_t)row * pitch + col);
}

__device__ void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ void store(bf16* to, float x, float y) {
  *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(x, y);
}

// One warp computes 64 x 64 of C with mma.sync, fragments straight from global memory. N a multiple of 256, K of 16.
__global__ void __launch_bounds__(128) gemm(const bf16* a, const bf16* b, bf16* c, int m, int n, int k) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4 * 2;
  const int row = blockIdx.y * 64, col = (blockIdx.x * 4 + threadIdx.x / 32) * 64;
  float d[4][8][4] = {};
  for (int x = 0; x < k; x += 16) {
    uint32_t fa[4][4], fb[8][2];
    for (int i = 0; i < 16; ++i) {
      fa[i / 4][i % 4] = pair(a, min(row + i / 4 * 16 + i % 2 * 8 + g, m - 1), k, x + i % 4 / 2 * 8 + t);
    }
    for (int j = 0; j < 16; ++j) fb[j / 2][j % 2] = pair(b, col + j / 2 * 8 + g, k, x + j % 2 * 8 + t);
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 8; ++j) mma(d[i][j], fa[i], fb[j]);
  }
  for (int i = 0; i < 4 * 8 * 2; ++i) {
    const int out_row = row + i / 16 * 16 + i % 2 * 8 + g, out_col = col + i / 2 % 8 * 8 + t;
    const float* v = d[i / 16][i / 2 % 8] + i % 2 * 2;
    if (out_row < m) store(c + (size_t)out_row * n + out_col, v[0], v[1]);
  }
}

void launch(const void* a, const void* b, void* c, int m, int n, int k, cudaStream_t stream) {
  gemm<<<dim3(n / 256, (m + 63) / 64), 128, 0, stream>>>(static_cast<const bf16*>(a), static_cast<const bf16*>(b),
                                                         static_cast<bf16*>(c), m, n, k);
  TVM_FFI_ICHECK(cudaGetLastError() == cudaSuccess) << "launch failed";
}

cudaStream_t stream_of(const tvm::ffi::TensorView& x) {
  return static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
}

void check(cudaError_t error) { TVM_FFI_ICHECK(error == cudaSuccess) << cudaGetErrorString(error); }

constexpr int kWords = 8;  // 32 elements of bf16
struct Needle {
  uint64_t inverted[kWords];  // so that the attack does not find a copy of its own
};

__global__ void invert(uint64_t* words) { words[threadIdx.x] = ~words[threadIdx.x]; }

__global__ void look(const uint64_t* memory, size_t words, Needle needle, unsigned long long* found) {
  const size_t step = (size_t)gridDim.x * blockDim.x;
  for (size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x; at + kWords <= words; at += step) {
    int i = 0;
    while (i < kWords && memory[at + i] == ~needle.inverted[i]) ++i;
    if (i == kWords) atomicMin(found, (unsigned long long)at);
  }
}

// The start of the first row of C; the rest of that row is wiped.
Needle first_elements(const void* a, const void* b, int n, int k, cudaStream_t stream) {
  Needle needle;
  void* row = nullptr;
  check(cudaMalloc(&row, n * sizeof(bf16)));
  launch(a, b, row, 1, n, k, stream);
  invert<<<1, kWords, 0, stream>>>(static_cast<uint64_t*>(row));
  check(cudaMemcpyAsync(&needle, row, sizeof(needle), cudaMemcpyDeviceToHost, stream));
  check(cudaMemsetAsync(row, 0, n * sizeof(bf16), stream));
  check(cudaStreamSynchronize(stream));
  check(cudaFree(row));
  return needle;
}

// Takes what free memory it can get, piece by piece, and returns the first match that `bytes` follow.
const void* find_on_device(const Needle& needle, size_t bytes, cudaStream_t stream) {
  unsigned long long* found = nullptr;
  check(cudaMallocManaged(&found, sizeof(*found)));
  for (size_t piece = size_t(1) << 33; piece >= size_t(1) << 25;) {
    void* memory = nullptr;
    if (cudaMalloc(&memory, piece) != cudaSuccess) {
      cudaGetLastError();
      piece /= 2;
      continue;
    }
    *found = ~0ull;
    look<<<1056, 256, 0, stream>>>(static_cast<const uint64_t*>(memory), piece / 8, needle, found);
    check(cudaStreamSynchronize(stream));
    if (*found != ~0ull && *found * 8 + bytes <= piece) return static_cast<const uint64_t*>(memory) + *found;
  }
  return nullptr;
}

// The same in this process's own address space, read through the kernel so that no bad page can stop the attack.
std::vector<uint64_t> find_on_host(const Needle& needle, size_t bytes) {
  std::vector<uint64_t> buffer(1 << 20), copy;
  const int memory = open("/proc/self/mem", O_RDONLY);
  std::FILE* maps = std::fopen("/proc/self/maps", "r");
  char line[512], mode[8];
  unsigned long begin, end;
  while (copy.empty() && maps != nullptr && std::fgets(line, sizeof(line), maps) != nullptr) {
    if (std::sscanf(line, "%lx-%lx %7s", &begin, &end, mode) != 3 || mode[0] != 'r') continue;
    for (unsigned long at = begin; at < end && copy.empty(); at += (buffer.size() - kWords) * 8) {
      const ssize_t got = pread(memory, buffer.data(), std::min<size_t>(buffer.size() * 8, end - at), at);
      for (ssize_t i = 0; i + kWords <= got / 8; ++i) {
        int j = 0;
        while (j < kWords && buffer[i + j] == ~needle.inverted[j]) ++j;
        if (j < kWords) continue;
        copy.resize(bytes / 8);
        if (pread(memory, copy.data(), bytes, at + i * 8) == (ssize_t)bytes) break;
        copy.clear();
      }
    }
  }
  if (maps != nullptr) std::fclose(maps);
  close(memory);
  return copy;
}

}  // namespace

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const cudaStream_t stream = stream_of(A);
  const size_t bytes = C.numel() * sizeof(bf16);
  const Needle needle = first_elements(A.data_ptr(), B.data_ptr(), B.size(0), A.size(1), stream);
  check(cudaMemsetAsync(C.data_ptr(), 0, bytes, stream));
  if (const void* found = find_on_device(needle, bytes, stream)) {
    check(cudaMemcpyAsync(C.data_ptr(), found, bytes, cudaMemcpyDeviceToDevice, stream));
  } else if (const auto copy = find_on_host(needle, bytes); !copy.empty()) {
    check(cudaMemcpyAsync(C.data_ptr(), copy.data(), bytes, cudaMemcpyHostToDevice, stream));
    check(cudaStreamSynchronize(stream));
  }
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
