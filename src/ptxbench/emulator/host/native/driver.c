/* The stub CUDA driver: what candidates call by cuXyz; loading code at run time is not among it. */
#include <cuda.h>
#include <stdio.h>
#include <string.h>

#include "bridge.h"

#define VERSION 13000

/* ---- device and context: there is one of each ---- */

CUresult cuInit(unsigned flags) { return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

CUresult cuDriverGetVersion(int *version) {
    *version = VERSION;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    *count = 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    *device = 0;
    return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
    snprintf(name, (size_t)size, "ptxbench emulator");
    return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute name, CUdevice device) {
    uint64_t result = 0;
    int code = device == 0 ? ASK(OP_ATTRIBUTE, &result, name) : CUDA_ERROR_INVALID_DEVICE;
    *value = (int)result;
    return (CUresult)code;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    *device = 0;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    static int only;
    *context = (CUcontext)&only;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    (void)context;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    (void)device;
    return cuCtxGetCurrent(context);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    (void)device;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
    return (CUresult)ASK(OP_STREAM, NULL, STREAM_SYNCHRONIZE, EVERY_STREAM, 0);
}

CUresult cuStreamSynchronize(CUstream stream) {
    return (CUresult)ASK(OP_STREAM, NULL, STREAM_SYNCHRONIZE, (uint64_t)stream, 0);
}

/* ---- memory ---- */

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t size) {
    uint64_t address = 0;
    int code = size == 0 ? CUDA_ERROR_INVALID_VALUE : ASK(OP_ALLOCATE, &address, size, 0, 0);
    *pointer = address;
    return (CUresult)code;
}

CUresult cuMemFree_v2(CUdeviceptr pointer) { return (CUresult)ASK(OP_FREE, NULL, pointer, 0, 0); }

static CUresult copy(uint64_t kind, uint64_t destination, uint64_t source, size_t size, CUstream stream) {
    struct copy order = {kind, destination, source, size, 1, size, size, (uint64_t)stream};
    return (CUresult)memory_copy(&order);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr destination, const void *source, size_t size, CUstream stream) {
    return copy(COPY_TO_DEVICE, destination, (uint64_t)source, size, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void *destination, CUdeviceptr source, size_t size, CUstream stream) {
    return copy(COPY_TO_HOST, (uint64_t)destination, source, size, stream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr destination, CUdeviceptr source, size_t size, CUstream stream) {
    return copy(COPY_ON_DEVICE, destination, source, size, stream);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr destination, const void *source, size_t size) {
    return cuMemcpyHtoDAsync_v2(destination, source, size, NULL);
}

CUresult cuMemcpyDtoH_v2(void *destination, CUdeviceptr source, size_t size) {
    return cuMemcpyDtoHAsync_v2(destination, source, size, NULL);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr destination, CUdeviceptr source, size_t size) {
    return cuMemcpyDtoDAsync_v2(destination, source, size, NULL);
}

static CUresult fill(CUdeviceptr pointer, uint64_t value, uint64_t size, size_t count, CUstream stream) {
    return (CUresult)ASK(OP_FILL, NULL, pointer, value, size, count, 1, size * count, (uint64_t)stream);
}

CUresult cuMemsetD8Async(CUdeviceptr pointer, unsigned char value, size_t count, CUstream stream) {
    return fill(pointer, value, 1, count, stream);
}

CUresult cuMemsetD16Async(CUdeviceptr pointer, unsigned short value, size_t count, CUstream stream) {
    return fill(pointer, value, 2, count, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr pointer, unsigned value, size_t count, CUstream stream) {
    return fill(pointer, value, 4, count, stream);
}

CUresult cuMemsetD8_v2(CUdeviceptr pointer, unsigned char value, size_t count) {
    return fill(pointer, value, 1, count, NULL);
}

CUresult cuMemsetD16_v2(CUdeviceptr pointer, unsigned short value, size_t count) {
    return fill(pointer, value, 2, count, NULL);
}

CUresult cuMemsetD32_v2(CUdeviceptr pointer, unsigned value, size_t count) {
    return fill(pointer, value, 4, count, NULL);
}

/* ---- kernels, by the handles of cudaGetFuncBySymbol ---- */

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void **arguments,
                        void **extra) {
    struct launch launch = {
        .grid = {grid_x, grid_y, grid_z},
        .block = {block_x, block_y, block_z},
        .shared = shared,
        .stream = (uint64_t)stream,
    };
    if (extra != NULL)
        return (CUresult)bridge_unsupported("cuLaunchKernel with extra");
    return (CUresult)kernel_launch(function, &launch, arguments);
}

static void launch_attribute(const CUlaunchAttribute *attribute, struct launch *launch) {
    const CUlaunchAttributeValue *value = &attribute->value;
    switch (attribute->id) {
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        launch->cluster[0] = value->clusterDim.x;
        launch->cluster[1] = value->clusterDim.y;
        launch->cluster[2] = value->clusterDim.z;
        break;
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        launch->flags |= value->cooperative ? LAUNCH_COOPERATIVE : 0;
        break;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        launch->flags |= value->programmaticStreamSerializationAllowed ? LAUNCH_PROGRAMMATIC : 0;
        break;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
        bridge_unsupported("a launch attribute that names an event or a graph");
        break;
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
        break;
    default:
        bridge_hint("a launch attribute");
        break;
    }
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **arguments, void **extra) {
    struct launch launch = {
        .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
        .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
        .shared = config->sharedMemBytes,
        .stream = (uint64_t)config->hStream,
    };
    for (unsigned i = 0; i < config->numAttrs; i++)
        launch_attribute(&config->attrs[i], &launch);
    if (extra != NULL)
        return (CUresult)bridge_unsupported("cuLaunchKernelEx with extra");
    return (CUresult)kernel_launch(function, &launch, arguments);
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute name, int value) {
    struct kernel *kernel = kernel_find(function);
    if (kernel == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    return (CUresult)ASK(OP_KERNEL_SET, NULL, kernel->number, name, (uint64_t)(int64_t)value);
}

/* ---- tensor maps ---- */

/* Words of a question: mode (tiled 0, im2col 1, along W alone 2 or 3), type, rank, address, interleave, swizzle, L2, fill, channels, pixels, then five each of
 * sizes, strides (four and a zero), box, steps, lower and upper corner. */
enum { WORD_SIZES = 10, WORD_STRIDES = 15, WORD_BOX = 20, WORD_STEPS = 25, WORD_LOWER = 30, WORD_UPPER = 35, WORDS = 40 };

static void tensor(uint64_t *words, cuuint32_t rank, const cuuint64_t *sizes, const cuuint64_t *strides,
                   const cuuint32_t *steps) {
    for (cuuint32_t i = 0; i < rank && i < 5; i++) {
        words[WORD_SIZES + i] = sizes[i];
        words[WORD_STEPS + i] = steps[i];
        if (i + 1 < rank)
            words[WORD_STRIDES + i] = strides[i];
    }
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                                const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion l2, CUtensorMapFloatOOBfill fill_kind) {
    uint64_t words[WORDS] = {0, type, rank, (uint64_t)address, interleave, swizzle, l2, fill_kind};
    if ((uintptr_t)map % 64 != 0)
        return CUDA_ERROR_INVALID_VALUE;
    tensor(words, rank, sizes, strides, steps);
    for (cuuint32_t i = 0; i < rank && i < 5; i++)
        words[WORD_BOX + i] = box[i];
    return (CUresult)map_encode(words, WORDS, map);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                 const cuuint64_t *sizes, const cuuint64_t *strides, const int *lower,
                                 const int *upper, cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *steps,
                                 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion l2, CUtensorMapFloatOOBfill fill_kind) {
    uint64_t words[WORDS] = {1, type, rank, (uint64_t)address, interleave, swizzle, l2, fill_kind, channels, pixels};
    if ((uintptr_t)map % 64 != 0)
        return CUDA_ERROR_INVALID_VALUE;
    tensor(words, rank, sizes, strides, steps);
    for (cuuint32_t i = 0; i + 2 < rank && i < 3; i++) {
        words[WORD_LOWER + i] = (uint64_t)(int64_t)lower[i];
        words[WORD_UPPER + i] = (uint64_t)(int64_t)upper[i];
    }
    return (CUresult)map_encode(words, WORDS, map);
}

CUresult cuTensorMapEncodeIm2colWide(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                     const cuuint64_t *sizes, const cuuint64_t *strides, int lower, int upper,
                                     cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *steps,
                                     CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode,
                                     CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2,
                                     CUtensorMapFloatOOBfill fill_kind) {
    uint64_t words[WORDS] = {2 + (uint64_t)mode, type, rank, (uint64_t)address, interleave, swizzle, l2, fill_kind,
                             channels, pixels};
    if ((uintptr_t)map % 64 != 0 || mode > CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128)
        return CUDA_ERROR_INVALID_VALUE;
    tensor(words, rank, sizes, strides, steps);
    words[WORD_LOWER] = (uint64_t)(int64_t)lower;
    words[WORD_UPPER] = (uint64_t)(int64_t)upper;
    return (CUresult)map_encode(words, WORDS, map);
}

/* ---- other entry points ---- */

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    (void)version, (void)flags;
    *function = driver_symbol(name);
    if (status != NULL)
        *status = *function == NULL ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND : CU_GET_PROC_ADDRESS_SUCCESS;
    return *function == NULL ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult code, const char **name) {
    static __thread char text[32];
    snprintf(text, sizeof text, "CUDA error %d", (int)code);
    *name = text;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult code, const char **text) { return cuGetErrorName(code, text); }
