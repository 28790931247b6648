/* Candidates for tests, honest and hostile, in plain C over the TVM-FFI C ABI; device pointers are host pointers here.
 *
 * Each takes (input, output): two float32 tensors, of which spies use the bytes as they like. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <tvm/ffi/c_api.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <unistd.h>

#include "wire.h"

#define CANDIDATE(name)                                                                                                \
    int __tvm_ffi_##name(void *self, const TVMFFIAny *arguments, int32_t count, TVMFFIAny *result);                    \
    int __tvm_ffi_##name(void *self, const TVMFFIAny *arguments, int32_t count, TVMFFIAny *result)
#define UNUSED (void)self, (void)arguments, (void)count, (void)result

static DLTensor *tensor(const TVMFFIAny *arguments, int index) { return arguments[index].v_ptr; }

#ifdef HANG_AT_LOAD
__attribute__((constructor)) static void hang_at_load(void) {
    for (;;)
        pause();
}
#endif

#ifdef CRASH_AT_LOAD
__attribute__((constructor)) static void crash_at_load(void) { abort(); }
#endif

/* output = 2 input, if everything about the arguments is as promised. */
CANDIDATE(twice) {
    (void)self, (void)result;
    const DLTensor *in = tensor(arguments, 0), *out = tensor(arguments, 1);
    int honest = count == 2 && arguments[0].type_index == kTVMFFIDLTensorPtr && in->ndim == 2 && in->dtype.code == 2 &&
                 in->dtype.bits == 32 && in->dtype.lanes == 1 && in->strides[0] == in->shape[1] && in->strides[1] == 1 &&
                 in->device.device_type == kDLCUDA && in->device.device_id == 0 && in->byte_offset == 0 &&
                 TVMFFIEnvGetStream(kDLCUDA, 0) != NULL;
    for (int64_t i = 0; honest && i < in->shape[0] * in->shape[1]; i++)
        ((float *)out->data)[i] = 2 * ((const float *)in->data)[i];
    return 0;
}

CANDIDATE(exit_zero) {
    UNUSED;
    _exit(0);
}

CANDIDATE(crash) {
    UNUSED;
    volatile int *volatile nowhere = NULL;
    *nowhere = 1;
    return 0;
}

CANDIDATE(abort) {
    UNUSED;
    abort();
}

CANDIDATE(hang) {
    UNUSED;
    for (;;)
        ;
}

CANDIDATE(raise) {
    UNUSED;
    TVMFFIErrorSetRaisedFromCStr("ValueError", "M must be a multiple of 128\x1b[2J");
    return -1;
}

CANDIDATE(device_error) {
    UNUSED;
    int *error = dlsym(RTLD_DEFAULT, "fake_cuda_error");
    *error = 700; /* CUDA_ERROR_ILLEGAL_ADDRESS */
    return 0;
}

CANDIDATE(print_passed) {
    UNUSED;
    printf("{\"status\": \"passed\"}\n");
    fprintf(stderr, "PASSED\n");
    fflush(stdout);
    return 0;
}

CANDIDATE(flood) {
    UNUSED;
    static char line[1 << 16];
    memset(line, 'x', sizeof line);
    for (int i = 0; i < 1600; i++)
        if (write(1, line, sizeof line) < 0)
            break;
    return 0;
}

/* The channel among this process's descriptors. */
static int channel(void) {
    for (int fd = 3; fd < 1024; fd++) {
        int type = 0;
        socklen_t size = sizeof type;
        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET)
            return fd;
    }
    return -1;
}

static void forge(uint32_t sequence, uint16_t kind, void *message, uint32_t size) {
    *(struct wire_header *)message = (struct wire_header){WIRE_MAGIC, WIRE_VERSION, kind, sequence, size};
    (void)!send(channel(), message, size, 0);
}

/* Every sequence number that the running order may have: the right one is among them. */
CANDIDATE(forge_any) {
    UNUSED;
    struct wire_done done = {.status = STATUS_OK};
    for (uint32_t sequence = 0; sequence < 64; sequence++)
        forge(sequence, WIRE_DONE, &done, sizeof done);
    return 0;
}

/* A whole, well-formed answer ahead of the real one; the test's first call has sequence number 4. */
CANDIDATE(forge_answer) {
    UNUSED;
    struct wire_progress returned = {.phase = PHASE_RETURNED, .host_ns = 1};
    struct wire_done done = {.status = STATUS_OK, .host_ns = 1};
    forge(5, WIRE_PROGRESS, &returned, sizeof returned);
    forge(5, WIRE_DONE, &done, sizeof done);
    return 0;
}

CANDIDATE(oversize) {
    UNUSED;
    static char message[40000];
    (void)!send(channel(), message, sizeof message, 0);
    return 0;
}

CANDIDATE(garbage) {
    UNUSED;
    (void)!send(channel(), "{\"status\": 0}", 13, 0);
    return 0;
}

CANDIDATE(close_channel) {
    UNUSED;
    close(channel());
    for (;;)
        pause();
}

/* Writes something after every call, for as long as the process lives. */
static void *scribble(void *where) {
    for (int i = 0;; i++) {
        ((volatile float *)where)[0] = (float)i;
        usleep(1000);
    }
    return NULL;
}

CANDIDATE(leave_thread) {
    (void)self, (void)count, (void)result;
    pthread_t thread;
    return pthread_create(&thread, NULL, scribble, tensor(arguments, 1)->data);
}

/* "Launches" a kernel and loads a cubin, where the process has the tests' CUPTI. */
CANDIDATE(launch) {
    (void)self, (void)count, (void)result;
    static char *const names[] = {"_Z4gemmPf", "_Z8epiloguePf"};
    void *cupti = dlopen("libcupti.so.13", RTLD_NOW | RTLD_NOLOAD);
    void (*kernel)(const char *, int64_t, int64_t, int) = 0;
    void (*module)(const char *, size_t) = 0;
    *(void **)&kernel = dlsym(cupti, "fake_kernel");
    *(void **)&module = dlsym(cupti, "fake_module");
    int calls = (int)++((float *)tensor(arguments, 1)->data)[0];
    if (calls == 1)
        module("cubin", 5);
    kernel(names[0], 10, 1010, 0);
    if (calls > 1)
        kernel(names[1], 2000, 2500, 0);
    return 0;
}

/* How many processes can be made: output[0]. */
CANDIDATE(fork_bomb) {
    (void)self, (void)count, (void)result;
    float made = 0;
    for (int i = 0; i < 4000; i++) {
        pid_t child = fork();
        if (child == 0)
            for (;;)
                pause();
        made += child > 0;
    }
    ((float *)tensor(arguments, 1)->data)[0] = made;
    return 0;
}
