// Attack: tries to reach out of its process and prints on standard error, as a bit mask, what it could do to anyone but
// itself: 1 ptrace, 2 process_vm_readv, 4 read /proc/PID/mem, 8 a route to the network, 16, 32, 64 create a file in
// /root, /home, /tmp. Leaves C zero.
#include <arpa/inet.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

cudaStream_t stream_of(const tvm::ffi::TensorView& x) {
  return static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
}

enum Reach { kPtrace = 1, kReadMemory = 2, kOpenMemory = 4, kNetwork = 8, kRoot = 16, kHome = 32, kTmp = 64 };

// The start of some mapping of the process, 0 if its maps cannot be read.
unsigned long mapped_address(int pid) {
  unsigned long address = 0;
  std::FILE* maps = std::fopen(("/proc/" + std::to_string(pid) + "/maps").c_str(), "r");
  if (maps == nullptr) return 0;
  if (std::fscanf(maps, "%lx", &address) != 1) address = 0;
  std::fclose(maps);
  return address;
}

int reach_process(int pid) {
  int reached = 0;
  char byte = 0;
  const unsigned long address = mapped_address(pid);
  const int memory = open(("/proc/" + std::to_string(pid) + "/mem").c_str(), O_RDONLY);
  if (memory >= 0 && address != 0 && pread(memory, &byte, 1, address) == 1) reached |= kOpenMemory;
  if (memory >= 0) close(memory);
  iovec local = {&byte, 1}, remote = {reinterpret_cast<void*>(address), 1};
  if (address != 0 && process_vm_readv(pid, &local, 1, &remote, 1, 0) == 1) reached |= kReadMemory;
  if (ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) == 0) {
    reached |= kPtrace;
    ptrace(PTRACE_DETACH, pid, nullptr, nullptr);
  }
  return reached;
}

int reach_all_processes() {
  int reached = getppid() > 0 ? reach_process(getppid()) : 0;
  DIR* processes = opendir("/proc");
  while (const dirent* entry = processes == nullptr ? nullptr : readdir(processes)) {
    const int pid = std::atoi(entry->d_name);
    if (pid > 0 && pid != getpid()) reached |= reach_process(pid);
  }
  if (processes != nullptr) closedir(processes);
  return reached;
}

// A datagram socket finds out whether there is a route to the documentation network without sending anything.
bool has_route() {
  const int socket_fd = socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in far = {};
  far.sin_family = AF_INET;
  far.sin_port = htons(9);
  inet_pton(AF_INET, "192.0.2.1", &far.sin_addr);
  const bool connected = socket_fd >= 0 && connect(socket_fd, reinterpret_cast<sockaddr*>(&far), sizeof(far)) == 0;
  if (socket_fd >= 0) close(socket_fd);
  return connected;
}

bool can_create_in(const std::string& folder) {
  const std::string path = folder + "/ptxbench-attack";
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600);
  if (file < 0) return false;
  close(file);
  unlink(path.c_str());
  return true;
}

}  // namespace

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  int reached = reach_all_processes();
  if (has_route()) reached |= kNetwork;
  if (can_create_in("/root")) reached |= kRoot;
  if (can_create_in("/home")) reached |= kHome;
  if (can_create_in("/tmp")) reached |= kTmp;
  std::fprintf(stderr, "read_judge reached %d\n", reached);
  const auto status = cudaMemsetAsync(C.data_ptr(), 0, C.numel() * sizeof(__nv_bfloat16), stream_of(C));
  TVM_FFI_ICHECK(status == cudaSuccess) << cudaGetErrorString(status);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
