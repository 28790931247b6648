/* The CUDA driver as the candidate process uses it: context, imported memory, exact-size copies. */
#ifndef PTXBENCH_DEVICE_H
#define PTXBENCH_DEVICE_H

#include <cuda.h>
#include <stdint.h>

#include "wire.h"

#define CUDA_FUNCTIONS(X)                                                                                              \
    X(init, cuInit, "cuInit")                                                                                          \
    X(device_get, cuDeviceGet, "cuDeviceGet")                                                                          \
    X(retain, cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")                                                    \
    X(set_current, cuCtxSetCurrent, "cuCtxSetCurrent")                                                                 \
    X(synchronize, cuCtxSynchronize, "cuCtxSynchronize")                                                               \
    X(reset_l2, cuCtxResetPersistingL2Cache, "cuCtxResetPersistingL2Cache")                                            \
    X(set_limit, cuCtxSetLimit, "cuCtxSetLimit")                                                                       \
    X(stream_create, cuStreamCreate, "cuStreamCreate")                                                                 \
    X(import, cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle")                                        \
    X(reserve, cuMemAddressReserve, "cuMemAddressReserve")                                                             \
    X(map, cuMemMap, "cuMemMap")                                                                                       \
    X(set_access, cuMemSetAccess, "cuMemSetAccess")                                                                    \
    X(release, cuMemRelease, "cuMemRelease")                                                                           \
    X(alloc, cuMemAlloc, "cuMemAlloc_v2")                                                                              \
    X(free, cuMemFree, "cuMemFree_v2")                                                                                 \
    X(copy, cuMemcpyDtoD, "cuMemcpyDtoD_v2")                                                                           \
    X(set_words, cuMemsetD32Async, "cuMemsetD32Async")                                                                 \
    X(error_name, cuGetErrorName, "cuGetErrorName")

#define CUDA_POINTER(field, function, symbol) __typeof__(function) *field;

struct device {
    struct {
        CUDA_FUNCTIONS(CUDA_POINTER)
    } cuda;
    int ordinal;
    CUstream stream;
    CUdeviceptr scratch; /* what calibration writes to */
    CUdeviceptr buffers[WIRE_BUFFERS];
    uint64_t sizes[WIRE_BUFFERS];
    uint32_t buffer_count;
};

/* Find the driver's functions in `library` (of dlopen). Returns NULL, or the name of one that is missing. */
const char *device_bind(struct device *device, void *library);

/* Primary context of device `ordinal`, made current, with a stream of our own. */
CUresult device_open(struct device *device, int ordinal);

/* Map an allocation that the judge exported; closes the descriptor. */
CUresult device_import(struct device *device, int descriptor, uint64_t size);

/* A known trivial piece of work (four bytes set), waited for. */
CUresult device_trivial_work(const struct device *device);

/* Forget persisting lines in L2 and allow none. */
CUresult device_reset_l2(const struct device *device);

/* "CUDA_ERROR_..." into `name`. */
void device_error_name(const struct device *device, CUresult code, char *name, size_t size);

#endif
