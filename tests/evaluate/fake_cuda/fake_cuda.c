/* A CUDA driver for tests on machines without a GPU: device memory is memory files, kernels are plain C. */
#define _GNU_SOURCE
#include <cuda.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* What cuCtxSynchronize answers; a candidate under test may set it, as a failing kernel would. */
int fake_cuda_error;

CUresult cuInit(unsigned flags) { return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    *device = ordinal;
    return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    static int only;
    (void)device;
    *context = (CUcontext)&only;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) { return context != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT; }

CUresult cuCtxSynchronize(void) { return (CUresult)fake_cuda_error; }

CUresult cuCtxResetPersistingL2Cache(void) { return CUDA_SUCCESS; }

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    return limit == CU_LIMIT_PERSISTING_L2_CACHE_SIZE && value == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    static int only;
    (void)flags;
    *stream = (CUstream)&only;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags option) {
    (void)option;
    *granularity = 2u << 20;
    return properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? CUDA_SUCCESS
                                                                                        : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *properties,
                     unsigned long long flags) {
    (void)properties, (void)flags;
    int file = memfd_create("fake-device", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)size) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = (CUmemGenericAllocationHandle)file;
    return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                      unsigned long long flags) {
    (void)type, (void)flags;
    *(int *)out = dup((int)handle);
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *descriptor,
                                        CUmemAllocationHandleType type) {
    (void)type;
    *handle = (CUmemGenericAllocationHandle)dup((int)(intptr_t)descriptor);
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *base, size_t size, size_t alignment, CUdeviceptr wish,
                             unsigned long long flags) {
    (void)alignment, (void)wish, (void)flags;
    void *memory = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *base = (CUdeviceptr)memory;
    return memory != MAP_FAILED ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemMap(CUdeviceptr base, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    (void)flags;
    void *memory = mmap((void *)base, size, PROT_NONE, MAP_SHARED | MAP_FIXED, (int)handle, (off_t)offset);
    return memory != MAP_FAILED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemSetAccess(CUdeviceptr base, size_t size, const CUmemAccessDesc *access, size_t count) {
    int wanted = count == 1 && access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return wanted && mprotect((void *)base, size, PROT_READ | PROT_WRITE) == 0 ? CUDA_SUCCESS
                                                                               : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemUnmap(CUdeviceptr base, size_t size) {
    return munmap((void *)base, size) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAddressFree(CUdeviceptr base, size_t size) {
    (void)base, (void)size;
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    return close((int)handle) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t size) {
    *pointer = (CUdeviceptr)malloc(size);
    return *pointer != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
    free((void *)pointer);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size) {
    memcpy((void *)to, (const void *)from, size);
    return CUDA_SUCCESS;
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
    (void)stream;
    for (size_t i = 0; i < count; i++)
        ((unsigned *)to)[i] = value;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult code, const char **name) {
    *name = code == CUDA_ERROR_ILLEGAL_ADDRESS   ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : code == CUDA_ERROR_INVALID_DEVICE  ? "CUDA_ERROR_INVALID_DEVICE"
            : code == CUDA_ERROR_OUT_OF_MEMORY   ? "CUDA_ERROR_OUT_OF_MEMORY"
                                                 : "CUDA_ERROR_UNKNOWN";
    return CUDA_SUCCESS;
}
