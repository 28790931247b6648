/* Modules, launches and the rest of what a replay asks of the driver; says on standard error what it was asked.
 *
 * Two kernels do something: `twice(in, out, count)` and `mapped(tensor map, out)`, which copies the tensor. */
#define _GNU_SOURCE
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float table[64];

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    fprintf(stderr, "module %.5s\n", (const char *)image);
    *module = (CUmodule)image;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    (void)module;
    *function = (CUfunction)strdup(name);
    return strcmp(name, "missing") == 0 ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal(CUdeviceptr *address, size_t *size, CUmodule module, const char *name) {
    (void)size, (void)module;
    if (strcmp(name, "table") != 0)
        return CUDA_ERROR_NOT_FOUND;
    *address = (CUdeviceptr)table;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute name, int value) {
    fprintf(stderr, "attribute %s %d %d\n", (const char *)function, (int)name, value);
    return CUDA_SUCCESS;
}

static const char *name_of(CUstream stream) {
    return stream == NULL ? "null" : stream == CU_STREAM_LEGACY ? "legacy" : "made";
}

static void twice(void **parameters) {
    const float *in = *(const float **)parameters[0];
    float *out = *(float **)parameters[1];
    for (uint64_t i = 0; i < *(uint64_t *)parameters[2]; i++)
        out[i] = 2 * in[i];
}

struct fake_map {
    const float *address;
    uint64_t count;
};

static void mapped(void **parameters) {
    const struct fake_map *map = parameters[0];
    memcpy(*(float **)parameters[1], map->address, map->count * sizeof(float));
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra) {
    const char *name = (const char *)function;
    (void)extra;
    fprintf(stderr, "launch %s %u,%u,%u %u,%u,%u %u %s", name, config->gridDimX, config->gridDimY, config->gridDimZ,
            config->blockDimX, config->blockDimY, config->blockDimZ, config->sharedMemBytes, name_of(config->hStream));
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *attribute = &config->attrs[i];
        if (attribute->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            fprintf(stderr, " cluster %u,%u,%u", attribute->value.clusterDim.x, attribute->value.clusterDim.y,
                    attribute->value.clusterDim.z);
        else
            fprintf(stderr, " %s",
                    attribute->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE ? "cooperative" : "programmatic");
    }
    fprintf(stderr, "\n");
    if (strcmp(name, "twice") == 0)
        twice(parameters);
    if (strcmp(name, "mapped") == 0)
        mapped(parameters);
    return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion l2, CUtensorMapFloatOOBfill fill) {
    fprintf(stderr, "tiled %d %u", (int)type, rank);
    for (unsigned i = 0; i < rank; i++)
        fprintf(stderr, " %lu,%lu,%u,%u", sizes[i], i + 1 < rank ? strides[i] : 0, box[i], steps[i]);
    fprintf(stderr, " %d %d %d %d\n", (int)interleave, (int)swizzle, (int)l2, (int)fill);
    *(struct fake_map *)map = (struct fake_map){address, sizes[0]};
    return (uintptr_t)map % 64 == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                 const cuuint64_t *sizes, const cuuint64_t *strides, const int *lower,
                                 const int *upper, cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *steps,
                                 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion l2, CUtensorMapFloatOOBfill fill) {
    (void)strides, (void)steps, (void)interleave, (void)swizzle, (void)l2, (void)fill;
    fprintf(stderr, "im2col %d %u %d,%d %d,%d %u %u\n", (int)type, rank, lower[0], lower[1], upper[0], upper[1], channels,
            pixels);
    *(struct fake_map *)map = (struct fake_map){address, sizes[0]};
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
    static int only;
    (void)device;
    *pool = (CUmemoryPool)&only;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute name, void *value) {
    (void)pool;
    fprintf(stderr, "pool %d %lu\n", (int)name, *(uint64_t *)value);
    return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t size, CUstream stream) {
    fprintf(stderr, "allocate %zu %s\n", size, name_of(stream));
    *address = (CUdeviceptr)calloc(1, size);
    return CUDA_SUCCESS;
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    fprintf(stderr, "free %s\n", name_of(stream));
    free((void *)address);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t size, CUstream stream) {
    fprintf(stderr, "copy in %zu %s\n", size, name_of(stream));
    memcpy((void *)to, from, size);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
    fprintf(stderr, "copy %zu %s\n", size, name_of(stream));
    memcpy((void *)to, (const void *)from, size);
    return CUDA_SUCCESS;
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D *copy, CUstream stream) {
    int from_host = copy->srcMemoryType == CU_MEMORYTYPE_HOST;
    const char *from = from_host ? copy->srcHost : (const char *)copy->srcDevice;
    fprintf(stderr, "rows %s %zu %zu %zu %zu %s\n", from_host ? "in" : "on", copy->WidthInBytes, copy->Height,
            copy->srcPitch, copy->dstPitch, name_of(stream));
    for (size_t row = 0; row < copy->Height; row++)
        memcpy((char *)copy->dstDevice + row * copy->dstPitch, from + row * copy->srcPitch, copy->WidthInBytes);
    return CUDA_SUCCESS;
}

#define FILL(bits, type)                                                                                               \
    CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value, size_t width, size_t height,           \
                                      CUstream stream) {                                                               \
        fprintf(stderr, "fill %d rows %x %zu %zu %zu %s\n", bits, value, width, height, pitch, name_of(stream));       \
        for (size_t row = 0; row < height; row++)                                                                      \
            for (size_t i = 0; i < width; i++)                                                                         \
                ((type *)(to + row * pitch))[i] = value;                                                               \
        return CUDA_SUCCESS;                                                                                           \
    }
FILL(8, unsigned char)
FILL(16, unsigned short)
FILL(32, unsigned)

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
    fprintf(stderr, "fill 8 %x %zu %s\n", value, count, name_of(stream));
    memset((void *)to, value, count);
    return CUDA_SUCCESS;
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
    return cuMemsetD2D16Async(to, 0, value, count, 1, stream);
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    fprintf(stderr, "event %u\n", flags);
    *event = calloc(1, 8);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    fprintf(stderr, "record %s\n", name_of(stream));
    return event == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    (void)flags;
    fprintf(stderr, "wait %s\n", name_of(stream));
    return event == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event) {
    fprintf(stderr, "wait for event\n");
    return event == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
    fprintf(stderr, "wait for %s\n", name_of(stream));
    return CUDA_SUCCESS;
}
