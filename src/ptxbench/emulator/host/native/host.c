/* The process in which a candidate's host code runs with no GPU: loads the stubs, locks itself in, makes the calls.
 *
 *     host SOCKET CUDART CUDA TVM_FFI LIBRARY SYMBOL      SOCKET: the descriptor of the socket to the Python side */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <tvm/ffi/c_api.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <unistd.h>

#include "bridge.h"
#include "sandbox.h"

enum ending { ENDED_RETURNED, ENDED_RAISED, ENDED_NOT_LOADED, ENDED_NO_SYMBOL };
enum { EXIT_USAGE = 121, EXIT_NO_LIBRARY, EXIT_NO_SANDBOX, EXIT_BAD_ORDER };

#define MAX_ARGUMENTS 64
#define MAX_DIMENSIONS 8

static struct {
    uint32_t count;
    DLTensor views[MAX_ARGUMENTS];
    int64_t shapes[MAX_ARGUMENTS][MAX_DIMENSIONS], strides[MAX_ARGUMENTS][MAX_DIMENSIONS];
    TVMFFIAny values[MAX_ARGUMENTS];
} tensors;

static __typeof__(TVMFFIErrorMoveFromRaised) *take_error;
static __typeof__(TVMFFIEnvSetStream) *set_stream;

/* Whoever touches an address of the device faults, as on a machine with one. */
static int reserve(uint64_t address, uint64_t size) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    return mmap((void *)address, size, PROT_NONE, flags, -1, 0) == (void *)address ? 0 : -1;
}

/* Words: number of address ranges, then start and size of each (whole pages, disjoint); number of tensors, then of each
 * address, code, bits and lanes of its type, rank, shape. */
static int receive_order(void) {
    struct question question = {.op = OP_START};
    struct answer answer = {0};
    if (bridge_ask(&question, &answer) != 0)
        return -1;
    const uint64_t *word = answer.words;
    for (uint64_t ranges = *word++; ranges > 0; ranges--, word += 2)
        if (reserve(word[0], word[1]) != 0)
            return -1;
    tensors.count = (uint32_t)*word++;
    if (tensors.count > MAX_ARGUMENTS)
        return -1;
    for (uint32_t i = 0; i < tensors.count; i++) {
        int64_t stride = 1;
        int rank = (int)word[4];
        if (rank > MAX_DIMENSIONS)
            return -1;
        for (int d = 0; d < rank; d++)
            tensors.shapes[i][d] = (int64_t)word[5 + d];
        for (int d = rank - 1; d >= 0; d--) {
            tensors.strides[i][d] = stride;
            stride *= tensors.shapes[i][d];
        }
        tensors.views[i] = (DLTensor){
            .data = (void *)word[0],
            .device = {kDLCUDA, 0},
            .ndim = rank,
            .dtype = {(uint8_t)word[1], (uint8_t)word[2], (uint16_t)word[3]},
            .shape = tensors.shapes[i],
            .strides = tensors.strides[i],
        };
        tensors.values[i].type_index = kTVMFFIDLTensorPtr;
        tensors.values[i].v_ptr = &tensors.views[i];
        word += 5 + rank;
    }
    return 0;
}

/* The next call's addresses, in the arguments' order; false when there is no further call. */
static int receive_call(void) {
    struct question question = {.op = OP_CALL};
    struct answer answer = {0};
    if (bridge_ask(&question, &answer) != 0 || answer.count == 0 || answer.count != tensors.count)
        return 0;
    for (uint32_t i = 0; i < tensors.count; i++)
        tensors.views[i].data = (void *)answer.words[i];
    return 1;
}

static void end(enum ending ending, const char *text) {
    struct answer answer;
    bridge_name(OP_ENDED, text, ending, &answer);
    _exit(0); /* no destructor of the candidate gets a turn */
}

static void raised(void) {
    char text[2048] = "no error was set";
    TVMFFIObjectHandle error = NULL;
    take_error(&error);
    if (error != NULL) {
        const TVMFFIErrorCell *cell = (const TVMFFIErrorCell *)((const char *)error + sizeof(TVMFFIObject));
        size_t size = cell->message.size < sizeof text - 80 ? cell->message.size : sizeof text - 80;
        snprintf(text, sizeof text, "%.*s: %.*s", (int)(cell->kind.size < 64 ? cell->kind.size : 64), cell->kind.data,
                 (int)size, cell->message.data);
    }
    end(ENDED_RAISED, text);
}

static void make_calls(TVMFFISafeCallType function) {
    while (receive_call()) {
        TVMFFIAny result = {.type_index = kTVMFFINone};
        set_stream(kDLCUDA, 0, (void *)GIVEN_STREAM, NULL);
        if (function(NULL, tensors.values, (int32_t)tensors.count, &result) != 0)
            raised();
    }
    end(ENDED_RETURNED, "");
}

int main(int count, char **words) {
    if (count != 7)
        return EXIT_USAGE;
    bridge_socket = atoi(words[1]);
    if (receive_order() != 0)
        return EXIT_BAD_ORDER;
    void *ffi = NULL;
    for (int i = 2; i <= 4; i++)
        if ((ffi = dlopen(words[i], RTLD_NOW | RTLD_GLOBAL)) == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return EXIT_NO_LIBRARY;
        }
    *(void **)&take_error = dlsym(ffi, "TVMFFIErrorMoveFromRaised");
    *(void **)&set_stream = dlsym(ffi, "TVMFFIEnvSetStream");
    if (take_error == NULL || set_stream == NULL)
        return EXIT_NO_LIBRARY;
    if (sandbox_enter() != 0) {
        perror("sandbox");
        return EXIT_NO_SANDBOX;
    }
    void *library = dlopen(words[5], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        end(ENDED_NOT_LOADED, dlerror());
    char symbol[512];
    TVMFFISafeCallType function;
    snprintf(symbol, sizeof symbol, "__tvm_ffi_%s", words[6]);
    *(void **)&function = dlsym(library, symbol);
    if (function == NULL)
        end(ENDED_NO_SYMBOL, symbol);
    make_calls(function);
}
