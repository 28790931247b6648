/* Carries out a recorded call (program.h) with the driver alone: none of the candidate's host code is in this process. */
#ifndef PTXBENCH_REPLAY_H
#define PTXBENCH_REPLAY_H

#include "call.h"
#include "program.h"

#define REPLAY_FUNCTIONS(X)                                                                                            \
    X(module_load, cuModuleLoadData, "cuModuleLoadData")                                                               \
    X(get_function, cuModuleGetFunction, "cuModuleGetFunction")                                                        \
    X(get_global, cuModuleGetGlobal, "cuModuleGetGlobal_v2")                                                           \
    X(launch, cuLaunchKernelEx, "cuLaunchKernelEx")                                                                    \
    X(set_attribute, cuFuncSetAttribute, "cuFuncSetAttribute")                                                         \
    X(encode_tiled, cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled")                                                  \
    X(encode_im2col, cuTensorMapEncodeIm2col, "cuTensorMapEncodeIm2col")                                               \
    X(default_pool, cuDeviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool")                                            \
    X(set_pool, cuMemPoolSetAttribute, "cuMemPoolSetAttribute")                                                        \
    X(alloc_async, cuMemAllocAsync, "cuMemAllocAsync")                                                                 \
    X(free_async, cuMemFreeAsync, "cuMemFreeAsync")                                                                    \
    X(copy, cuMemcpy2DAsync, "cuMemcpy2DAsync_v2")                                                                     \
    X(copy_in, cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2")                                                              \
    X(copy_row, cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2")                                                             \
    X(fill8, cuMemsetD2D8Async, "cuMemsetD2D8Async")                                                                   \
    X(fill16, cuMemsetD2D16Async, "cuMemsetD2D16Async")                                                                \
    X(fill32, cuMemsetD2D32Async, "cuMemsetD2D32Async")                                                                \
    X(fill_row8, cuMemsetD8Async, "cuMemsetD8Async")                                                                   \
    X(fill_row16, cuMemsetD16Async, "cuMemsetD16Async")                                                                \
    X(event_create, cuEventCreate, "cuEventCreate")                                                                    \
    X(event_record, cuEventRecord, "cuEventRecord")                                                                    \
    X(event_wait, cuEventSynchronize, "cuEventSynchronize")                                                            \
    X(stream_wait, cuStreamWaitEvent, "cuStreamWaitEvent")                                                             \
    X(stream_synchronize, cuStreamSynchronize, "cuStreamSynchronize")

/* One workload's own world: modules with their variables, memory, streams, events, and how far it has come. */
struct stage {
    const struct workload *workload;
    CUmodule *modules;
    CUfunction *functions;
    CUdeviceptr *allocations;
    CUstream *streams;
    CUevent *events;
    uint64_t calls_made;
};

struct replay {
    struct {
        REPLAY_FUNCTIONS(CUDA_POINTER)
    } cuda;
    struct program program;
    struct stage *stages;
};

/* Find the driver's functions in `library` (of dlopen). Returns NULL, or the name of one that is missing. */
const char *replay_bind(struct replay *replay, void *library);

/* Read the program behind `descriptor` and load its machine code. Returns a driver's error, or CUDA_SUCCESS; where the
 * program itself is at fault, `why` is not NULL afterwards. */
CUresult replay_load(struct replay *replay, const struct device *device, int descriptor, const char **why);

/* Carry out the next call of the workload with these shapes; errors as in `replay_load`. */
CUresult replay_call(struct replay *replay, const struct device *device, const struct tensors *tensors,
                     const char **why);

#endif
