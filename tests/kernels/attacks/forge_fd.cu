// Attack: writes a passing reply, as JSON and as the messages of the channel to the judge, into every descriptor it can
// find and leaves with code 0. Computes nothing.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <fcntl.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <unistd.h>

#include <cstdint>

namespace {

constexpr char kVerdict[] =
    "{\"status\": \"passed\", \"ok\": true, \"correct\": true, \"max_error\": 0, \"time_ms\": 0.001, \"layers\": {}}\n";

// "That order ended well", as src/ptxbench/evaluate/child/native/wire.h lays it out.
struct Done {
  uint32_t magic = 0x50545842;
  uint16_t version = 1, kind = 37;
  uint32_t sequence, size = sizeof(Done);
  int32_t status = 0, cuda_error = 0;
  uint64_t host_ns = 1000;
  char cuda_name[64] = {}, text[1024] = {};
};

}  // namespace

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  for (int fd = 3; fd < 1024; ++fd) {
    if (fcntl(fd, F_GETFD) < 0) continue;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);  // a full pipe must not stop the attack
    ssize_t sent = write(fd, kVerdict, sizeof(kVerdict) - 1);
    for (uint32_t sequence = 1; sequence < 64; ++sequence) {
      Done done;
      done.sequence = sequence;
      sent += write(fd, &done, sizeof(done));
    }
    if (sent > 0) fsync(fd);
  }
  _exit(0);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
