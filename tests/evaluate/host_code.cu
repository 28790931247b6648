// Host code of many habits, for the recorder: each function is a candidate of its own for a product C = A B^T.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <cstdint>
#include <cstring>
#include <ctime>
#include <new>

namespace {

using tvm::ffi::TensorView;

struct Padded {
  char letter;
  void* pointer;
};

__global__ void product(const void* a, const void* b, void* c, int number) {}
__global__ void padded(Padded p) {}

cudaStream_t stream_of(const TensorView& x) {
  return static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
}

void launch(const TensorView& a, const TensorView& b, const TensorView& c, int number = 0) {
  product<<<4, 64, 0, stream_of(a)>>>(a.data_ptr(), b.data_ptr(), c.data_ptr(), number);
}

}  // namespace

#define HABIT(name)                                  \
  void name(TensorView a, TensorView b, TensorView c); \
  TVM_FFI_DLL_EXPORT_TYPED_FUNC(name, name);         \
  void name(TensorView a, TensorView b, TensorView c)

HABIT(steady) { launch(a, b, c); }

HABIT(counts) {
  static int calls = 0;
  launch(a, b, c, calls++ % 64);
}

HABIT(sets_up) {
  static void* workspace = nullptr;
  static cudaStream_t side = nullptr;
  static cudaEvent_t done = nullptr;
  if (workspace == nullptr) {
    cudaMalloc(&workspace, 1024);
    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
  }
  cudaMemsetAsync(workspace, 0, 1024, side);
  cudaEventRecord(done, side);
  cudaStreamWaitEvent(stream_of(a), done, 0);
  product<<<4, 64, 0, stream_of(a)>>>(a.data_ptr(), workspace, c.data_ptr(), 0);
}

HABIT(pads) {
  alignas(Padded) unsigned char bytes[sizeof(Padded)];
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  std::memset(bytes, static_cast<int>(now.tv_nsec % 251), sizeof bytes);
  Padded* value = new (bytes) Padded;
  value->letter = 'p';
  value->pointer = c.data_ptr();
  void* arguments[] = {value};
  cudaLaunchKernel(reinterpret_cast<const void*>(padded), dim3(1), dim3(32), arguments, 0, stream_of(a));
}

HABIT(keeps_a_pointer) {
  static void* first = a.data_ptr();
  product<<<4, 64, 0, stream_of(a)>>>(first, b.data_ptr(), c.data_ptr(), 0);
}

HABIT(looks_at_addresses) {
  launch(a, b, c);
  if (reinterpret_cast<std::uintptr_t>(a.data_ptr()) >> 40 & 1) launch(a, b, c);
}

HABIT(looks_at_the_clock) {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  launch(a, b, c);
  if (now.tv_nsec / 128 % 2) launch(a, b, c);
}

HABIT(knows_pointers) {
  static void* known[64];
  for (void*& each : known) {
    if (each == a.data_ptr()) return;
    if (each != nullptr) continue;
    each = a.data_ptr();
    break;
  }
  launch(a, b, c);
}

HABIT(reads_results) {
  int first;
  launch(a, b, c);
  cudaMemcpy(&first, c.data_ptr(), 4, cudaMemcpyDeviceToHost);
}

HABIT(keeps_lines_in_l2) {
  cudaStreamAttrValue value = {};
  cudaStreamSetAttribute(stream_of(a), cudaStreamAttributeAccessPolicyWindow, &value);
  launch(a, b, c);
}

HABIT(ignores_errors) {
  product<<<4, 4096, 0, stream_of(a)>>>(a.data_ptr(), b.data_ptr(), c.data_ptr(), 0);
  cudaGetLastError();
}

HABIT(raises_at_last) {
  static int calls = 0;
  launch(a, b, c);
  TVM_FFI_ICHECK(++calls < 50) << "tired";
}
