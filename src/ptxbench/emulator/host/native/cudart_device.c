/* The CUDA runtime's calls about the device, streams, events and the driver's entry points. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cudart.h"

#define VERSION 13000

/* ---- device ---- */

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) { return report(device == 0 ? cudaSuccess : cudaErrorInvalidDevice); }

cudaError_t cudaInitDevice(int device, unsigned flags, unsigned mode) {
    (void)flags, (void)mode;
    return cudaSetDevice(device);
}

cudaError_t cudaSetDeviceFlags(unsigned flags) {
    (void)flags;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }

static int attribute(enum cudaDeviceAttr name) {
    uint64_t value = 0;
    ASK(OP_ATTRIBUTE, &value, name);
    return (int)value;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr name, int device) {
    uint64_t result = 0;
    int code = device == 0 ? ASK(OP_ATTRIBUTE, &result, name) : cudaErrorInvalidDevice;
    *value = (int)result;
    return report(code);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *all, int device) {
    if (device != 0)
        return report(cudaErrorInvalidDevice);
    size_t free_bytes;
    memset(all, 0, sizeof *all);
    snprintf(all->name, sizeof all->name, "ptxbench emulator");
    cudaMemGetInfo(&free_bytes, &all->totalGlobalMem);
    all->major = attribute(cudaDevAttrComputeCapabilityMajor);
    all->minor = attribute(cudaDevAttrComputeCapabilityMinor);
    all->multiProcessorCount = attribute(cudaDevAttrMultiProcessorCount);
    all->warpSize = attribute(cudaDevAttrWarpSize);
    all->maxThreadsPerBlock = attribute(cudaDevAttrMaxThreadsPerBlock);
    all->maxThreadsPerMultiProcessor = attribute(cudaDevAttrMaxThreadsPerMultiProcessor);
    all->maxBlocksPerMultiProcessor = attribute(cudaDevAttrMaxBlocksPerMultiprocessor);
    all->regsPerBlock = attribute(cudaDevAttrMaxRegistersPerBlock);
    all->regsPerMultiprocessor = attribute(cudaDevAttrMaxRegistersPerMultiprocessor);
    all->sharedMemPerBlock = (size_t)attribute(cudaDevAttrMaxSharedMemoryPerBlock);
    all->sharedMemPerBlockOptin = (size_t)attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    all->sharedMemPerMultiprocessor = (size_t)attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
    all->reservedSharedMemPerBlock = (size_t)attribute(cudaDevAttrReservedSharedMemoryPerBlock);
    all->totalConstMem = (size_t)attribute(cudaDevAttrTotalConstantMemory);
    all->l2CacheSize = attribute(cudaDevAttrL2CacheSize);
    all->memoryBusWidth = attribute(cudaDevAttrGlobalMemoryBusWidth);
    all->concurrentKernels = all->unifiedAddressing = all->cooperativeLaunch = all->clusterLaunch = 1;
    for (int i = 0; i < 3; i++) {
        all->maxThreadsDim[i] = attribute(cudaDevAttrMaxBlockDimX + i);
        all->maxGridSize[i] = attribute(cudaDevAttrMaxGridDimX + i);
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    return report(ASK(OP_STREAM, NULL, STREAM_SYNCHRONIZE, EVERY_STREAM, 0));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    static int only;
    *pool = (cudaMemPool_t)&only;
    return report(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr name, void *value) {
    (void)pool;
    if (name == cudaMemPoolAttrReleaseThreshold)
        return report(ASK(OP_POOL, NULL, name, *(const uint64_t *)value));
    if (name < cudaMemPoolAttrReleaseThreshold)
        return report(ASK(OP_POOL, NULL, name, (uint64_t)*(const int *)value));
    return report(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceSetLimit(enum cudaLimit name, size_t value) {
    (void)name, (void)value;
    bridge_hint("cudaDeviceSetLimit");
    return cudaSuccess;
}

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    uint64_t number = 0;
    if (priority != 0)
        bridge_hint("a stream's priority");
    int code = ASK(OP_STREAM, &number, STREAM_CREATE, 0, flags);
    *stream = (cudaStream_t)number;
    return report(code);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    return report(ASK(OP_STREAM, NULL, STREAM_DESTROY, (uint64_t)stream, 0));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return report(ASK(OP_STREAM, NULL, STREAM_SYNCHRONIZE, (uint64_t)stream, 0));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    (void)flags;
    return report(ASK(OP_STREAM, NULL, STREAM_WAIT, (uint64_t)stream, (uint64_t)event));
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    (void)stream;
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
    (void)stream;
    *priority = 0;
    return cudaSuccess;
}

cudaError_t cudaStreamSetAttribute(cudaStream_t stream, cudaLaunchAttributeID name,
                                   const cudaLaunchAttributeValue *value) {
    (void)stream, (void)name, (void)value;
    bridge_hint("cudaStreamSetAttribute");
    return cudaSuccess;
}

/* All earlier work counts as done here, so the callback may run at once; the record says that there was one. */
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
    int code = ASK(OP_STREAM, NULL, STREAM_CALLBACK, (uint64_t)stream, 0);
    if (code == cudaSuccess)
        function(data);
    return report(code);
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void *data, unsigned flags) {
    (void)flags;
    int code = ASK(OP_STREAM, NULL, STREAM_CALLBACK, (uint64_t)stream, 0);
    if (code == cudaSuccess)
        function(stream, cudaSuccess, data);
    return report(code);
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    uint64_t number = 0;
    int code = ASK(OP_EVENT, &number, EVENT_CREATE, 0, flags);
    *event = (cudaEvent_t)number;
    return report(code);
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    return report(ASK(OP_EVENT, NULL, EVENT_DESTROY, (uint64_t)event, 0));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    (void)flags;
    return report(ASK(OP_EVENT, NULL, EVENT_RECORD, (uint64_t)event, (uint64_t)stream));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return cudaEventRecordWithFlags(event, stream, 0);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return report(ASK(OP_EVENT, NULL, EVENT_SYNCHRONIZE, (uint64_t)event, 0));
}

cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaEventSynchronize(event); }

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t stop) {
    (void)start, (void)stop;
    *milliseconds = 0; /* there is no clock here */
    return report(bridge_unsupported("cudaEventElapsedTime"));
}

/* ---- the driver's entry points ---- */

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status) {
    (void)version, (void)flags;
    *function = driver_symbol(name);
    if (status != NULL)
        *status = *function == NULL ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *status) {
    return cudaGetDriverEntryPointByVersion(name, function, VERSION, flags, status);
}
