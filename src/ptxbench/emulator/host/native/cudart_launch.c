/* The CUDA runtime's registration and launch calls, and its last error; copies and streams are elsewhere. */
#include "cudart.h"

#include <string.h>

static __thread cudaError_t last_error;

cudaError_t report(int code) {
    if (code != cudaSuccess && code != cudaErrorNotReady)
        last_error = (cudaError_t)code;
    return (cudaError_t)code;
}

cudaError_t cudaGetLastError(void) {
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void) { return last_error; }

/* ---- what nvcc's code calls at load ---- */

void **__cudaRegisterFatBinary(void *image) {
    static void *handle;
    handle = image;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
char __cudaInitModule(void **handle) {
    (void)handle;
    return 1;
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, uint3 *thread,
                            uint3 *block, dim3 *block_size, dim3 *grid_size, int *warp) {
    (void)handle, (void)device, (void)limit, (void)thread, (void)block, (void)block_size, (void)grid_size, (void)warp;
    kernel_register(host, name);
}

static struct variable {
    const void *host;
    uint64_t address, size;
} variables[1024];
static size_t variable_count;

void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t size,
                       int constant, int global) {
    (void)handle, (void)device, (void)external, (void)constant, (void)global;
    struct answer answer;
    if (variable_count < sizeof variables / sizeof variables[0] &&
        bridge_name(OP_VARIABLE, name, size, &answer) == 0 && answer.count > 0)
        variables[variable_count++] = (struct variable){host, answer.words[0], size};
}

uint64_t variable_address(const void *host, size_t *size) {
    for (size_t i = 0; i < variable_count; i++)
        if (variables[i].host == host) {
            if (size != NULL)
                *size = variables[i].size;
            return variables[i].address;
        }
    return 0;
}

/* ---- launches ---- */

static __thread struct configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
} pushed;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream) {
    pushed = (struct configuration){grid, block, shared, stream};
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    *grid = pushed.grid;
    *block = pushed.block;
    *shared = pushed.shared;
    *(cudaStream_t *)stream = pushed.stream;
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host) {
    *kernel = (cudaKernel_t)kernel_find(host);
    return *kernel == NULL ? report(cudaErrorInvalidDeviceFunction) : cudaSuccess;
}

static struct launch plain(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    return (struct launch){
        .grid = {grid.x, grid.y, grid.z},
        .block = {block.x, block.y, block.z},
        .shared = shared,
        .stream = (uint64_t)stream,
    };
}

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                             cudaStream_t stream) {
    struct launch launch = plain(grid, block, shared, stream);
    return report(kernel_launch(kernel, &launch, arguments));
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                               cudaStream_t stream) {
    return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

cudaError_t cudaLaunchCooperativeKernel(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                                        cudaStream_t stream) {
    struct launch launch = plain(grid, block, shared, stream);
    launch.flags = LAUNCH_COOPERATIVE;
    return report(kernel_launch(kernel, &launch, arguments));
}

int launch_attributes(const cudaLaunchAttribute *attributes, unsigned count, struct launch *launch) {
    for (unsigned i = 0; i < count; i++) {
        const cudaLaunchAttributeValue *value = &attributes[i].val;
        switch (attributes[i].id) {
        case cudaLaunchAttributeClusterDimension:
            launch->cluster[0] = value->clusterDim.x;
            launch->cluster[1] = value->clusterDim.y;
            launch->cluster[2] = value->clusterDim.z;
            break;
        case cudaLaunchAttributeCooperative:
            launch->flags |= value->cooperative ? LAUNCH_COOPERATIVE : 0;
            break;
        case cudaLaunchAttributeProgrammaticStreamSerialization:
            launch->flags |= value->programmaticStreamSerializationAllowed ? LAUNCH_PROGRAMMATIC : 0;
            break;
        case cudaLaunchAttributeProgrammaticEvent:
        case cudaLaunchAttributeLaunchCompletionEvent:
        case cudaLaunchAttributeDeviceUpdatableKernelNode:
            return bridge_unsupported("a launch attribute that names an event or a graph");
        case cudaLaunchAttributeIgnore:
            break;
        default:
            bridge_hint("a launch attribute");
            break;
        }
    }
    return cudaSuccess;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **arguments) {
    struct launch launch = plain(config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream);
    int code = launch_attributes(config->attrs, config->numAttrs, &launch);
    return report(code != cudaSuccess ? code : kernel_launch(kernel, &launch, arguments));
}

/* ---- functions ---- */

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value) {
    struct kernel *kernel = kernel_find(function);
    if (kernel == NULL)
        return report(cudaErrorInvalidDeviceFunction);
    return report(ASK(OP_KERNEL_SET, NULL, kernel->number, attribute, (uint64_t)(int64_t)value));
}

cudaError_t cudaFuncSetCacheConfig(const void *function, enum cudaFuncCache config) {
    if (config != cudaFuncCachePreferNone)
        bridge_hint("cudaFuncSetCacheConfig");
    return report(kernel_find(function) == NULL ? cudaErrorInvalidDeviceFunction : cudaSuccess);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function) {
    struct kernel *kernel = kernel_find(function);
    if (kernel == NULL)
        return report(cudaErrorInvalidDeviceFunction);
    struct question question = {.op = OP_KERNEL_GET, .words = &kernel->number, .count = 1};
    struct answer answer = {0};
    int code = bridge_ask(&question, &answer);
    const uint64_t *w = answer.words;
    memset(attributes, 0, sizeof *attributes);
    attributes->sharedSizeBytes = w[0];
    attributes->constSizeBytes = w[1];
    attributes->localSizeBytes = w[2];
    attributes->maxThreadsPerBlock = (int)w[3];
    attributes->numRegs = (int)w[4];
    attributes->ptxVersion = attributes->binaryVersion = (int)w[5];
    attributes->maxDynamicSharedSizeBytes = (int)w[6];
    attributes->requiredClusterWidth = (int)w[7];
    attributes->requiredClusterHeight = (int)w[8];
    attributes->requiredClusterDepth = (int)w[9];
    attributes->clusterDimMustBeSet = w[7] != 0;
    attributes->nonPortableClusterSizeAllowed = (int)w[10];
    attributes->preferredShmemCarveout = -1;
    return report(code);
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t *function, const void *host) {
    *function = (cudaFunction_t)kernel_find(host);
    return report(*function == NULL ? cudaErrorInvalidDeviceFunction : cudaSuccess);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads,
                                                          size_t shared) {
    struct kernel *kernel = kernel_find(function);
    if (kernel == NULL)
        return report(cudaErrorInvalidDeviceFunction);
    uint64_t result;
    int code = ASK(OP_OCCUPANCY, &result, kernel->number, (uint64_t)threads, shared, 1);
    *blocks = (int)result;
    return report(code);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads,
                                                                   size_t shared, unsigned flags) {
    (void)flags;
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}

cudaError_t cudaOccupancyMaxActiveClusters(int *clusters, const void *function, const cudaLaunchConfig_t *config) {
    struct kernel *kernel = kernel_find(function);
    struct launch launch = {.cluster = {1, 1, 1}};
    if (kernel == NULL)
        return report(cudaErrorInvalidDeviceFunction);
    int code = launch_attributes(config->attrs, config->numAttrs, &launch);
    uint64_t size = launch.cluster[0] * launch.cluster[1] * launch.cluster[2], result = 0;
    uint64_t threads = (uint64_t)config->blockDim.x * config->blockDim.y * config->blockDim.z;
    if (code == cudaSuccess)
        code = ASK(OP_OCCUPANCY, &result, kernel->number, threads, config->dynamicSmemBytes, size);
    *clusters = (int)result;
    return report(code);
}
