// Attack: patches send() in its own process, so that the times of an honest kernel, as the instrument reports them,
// reach the judge four times shorter than they were.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

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

// The messages of src/ptxbench/evaluate/child/native/wire.h that carry times.
enum Kind : uint16_t { kProgress = 32, kSpans = 36, kDone = 37 };
struct Entry {
  uint64_t start, end;
  uint32_t kind, name, stream, graph;
};
struct Message {
  uint32_t magic;
  uint16_t version, kind;
  uint32_t sequence, size;
  union {
    struct {
      uint32_t what, code;
      uint64_t host_ns;
    } call;
    struct {
      uint64_t window_begin, window_end, first_start, last_end;
      uint32_t records, dropped, absurd, strays, listed, nameless, names, modules;
      Entry entries[256];
    } spans;
  };
};

void shorten(Message& message) {
  if (message.kind == kProgress || message.kind == kDone) message.call.host_ns /= 4;
  if (message.kind != kSpans) return;
  auto& spans = message.spans;
  const uint64_t origin = spans.first_start;
  spans.last_end = origin + (spans.last_end - origin) / 4;
  for (uint32_t i = 0; i < spans.listed && i < 256; ++i) {
    spans.entries[i].start = origin + (spans.entries[i].start - origin) / 4;
    spans.entries[i].end = origin + (spans.entries[i].end - origin) / 4;
  }
}

ssize_t forged_send(int socket_fd, const void* data, size_t size, int flags) {
  Message message;
  if (size >= 32 && size <= sizeof(message)) {
    std::memcpy(&message, data, size);
    if (message.magic == 0x50545842) {
      shorten(message);
      data = &message;
    }
  }
  return syscall(SYS_sendto, socket_fd, data, size, flags, nullptr, 0);
}

// Overwrites the first bytes of send() with a jump (x86-64: mov rax, address; jmp rax).
bool patch_send() {
  const auto target = reinterpret_cast<uintptr_t>(&send), forged = reinterpret_cast<uintptr_t>(&forged_send);
  void* page = reinterpret_cast<void*>(target & ~uintptr_t(4095));
  if (mprotect(page, 2 * 4096, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) return false;
  uint8_t jump[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
  std::memcpy(jump + 2, &forged, sizeof(forged));
  std::memcpy(reinterpret_cast<void*>(target), jump, sizeof(jump));
  return true;
}

}  // namespace

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static const bool patched = patch_send();
  TVM_FFI_ICHECK(patched) << "send() cannot be patched";
  launch(A.data_ptr(), B.data_ptr(), C.data_ptr(), A.size(0), B.size(0), A.size(1), stream_of(A));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
