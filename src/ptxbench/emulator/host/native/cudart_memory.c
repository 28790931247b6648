/* The CUDA runtime's memory calls: allocations, copies, fills, variables. Host memory is ordinary memory. */
#include <stdlib.h>
#include <string.h>

#include "cudart.h"

static cudaError_t allocate(void **pointer, size_t size, cudaStream_t stream, int in_order) {
    uint64_t address = 0;
    int code = ASK(OP_ALLOCATE, &address, size, (uint64_t)stream, (uint64_t)in_order);
    *pointer = (void *)address;
    return report(code);
}

static cudaError_t release(void *pointer, cudaStream_t stream, int in_order) {
    if (pointer == NULL)
        return cudaSuccess;
    return report(ASK(OP_FREE, NULL, (uint64_t)pointer, (uint64_t)stream, (uint64_t)in_order));
}

cudaError_t cudaMalloc(void **pointer, size_t size) { return allocate(pointer, size, NULL, 0); }
cudaError_t cudaFree(void *pointer) { return release(pointer, NULL, 0); }

cudaError_t cudaMallocAsync(void **pointer, size_t size, cudaStream_t stream) {
    return allocate(pointer, size, stream, 1);
}

cudaError_t cudaMallocFromPoolAsync(void **pointer, size_t size, cudaMemPool_t pool, cudaStream_t stream) {
    (void)pool;
    return allocate(pointer, size, stream, 1);
}

cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream) { return release(pointer, stream, 1); }

cudaError_t cudaMallocPitch(void **pointer, size_t *pitch, size_t width, size_t height) {
    *pitch = (width + 511) / 512 * 512;
    return allocate(pointer, *pitch * height, NULL, 0);
}

cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned flags) {
    (void)flags;
    *pointer = malloc(size);
    return report(*pointer == NULL ? cudaErrorMemoryAllocation : cudaSuccess);
}

cudaError_t cudaMallocHost(void **pointer, size_t size) { return cudaHostAlloc(pointer, size, 0); }

cudaError_t cudaFreeHost(void *pointer) {
    free(pointer);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *pointer, size_t size, unsigned flags) {
    (void)pointer, (void)size, (void)flags;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *pointer) {
    (void)pointer;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    struct question question = {.op = OP_MEMORY};
    struct answer answer = {0};
    int code = bridge_ask(&question, &answer);
    *free_bytes = answer.words[0];
    *total = answer.words[1];
    return report(code);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer) {
    uint64_t on_device = 0;
    int code = ASK(OP_MEMORY, &on_device, (uint64_t)pointer);
    memset(attributes, 0, sizeof *attributes);
    attributes->type = on_device ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
    attributes->devicePointer = on_device ? (void *)pointer : NULL;
    return report(code);
}

/* ---- copies ---- */

static cudaError_t copy_rows(struct copy copy, enum cudaMemcpyKind kind, cudaStream_t stream) {
    static const uint64_t kinds[] = {0, COPY_TO_DEVICE, COPY_TO_HOST, COPY_ON_DEVICE, COPY_DEFAULT};
    if ((unsigned)kind > cudaMemcpyDefault)
        return report(cudaErrorInvalidMemcpyDirection);
    if (kind == cudaMemcpyHostToHost) {
        for (uint64_t row = 0; row < copy.height; row++)
            memcpy((char *)copy.destination + row * copy.destination_pitch,
                   (char *)copy.source + row * copy.source_pitch, copy.width);
        return cudaSuccess;
    }
    copy.kind = kinds[kind];
    copy.stream = (uint64_t)stream;
    return report(memory_copy(&copy));
}

cudaError_t cudaMemcpyAsync(void *destination, const void *source, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    struct copy copy = {0, (uint64_t)destination, (uint64_t)source, size, 1, size, size, 0};
    return copy_rows(copy, kind, stream);
}

cudaError_t cudaMemcpy(void *destination, const void *source, size_t size, enum cudaMemcpyKind kind) {
    return cudaMemcpyAsync(destination, source, size, kind, NULL);
}

cudaError_t cudaMemcpy2DAsync(void *destination, size_t destination_pitch, const void *source, size_t source_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
    struct copy copy = {0,      (uint64_t)destination, (uint64_t)source, width, height, destination_pitch,
                        source_pitch, 0};
    return copy_rows(copy, kind, stream);
}

cudaError_t cudaMemcpy2D(void *destination, size_t destination_pitch, const void *source, size_t source_pitch,
                         size_t width, size_t height, enum cudaMemcpyKind kind) {
    return cudaMemcpy2DAsync(destination, destination_pitch, source, source_pitch, width, height, kind, NULL);
}

cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *source, size_t count, size_t offset,
                                    enum cudaMemcpyKind kind, cudaStream_t stream) {
    uint64_t address = variable_address(symbol, NULL);
    if (address == 0)
        return report(cudaErrorInvalidSymbol);
    return cudaMemcpyAsync((char *)address + offset, source, count, kind, stream);
}

cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *source, size_t count, size_t offset,
                               enum cudaMemcpyKind kind) {
    return cudaMemcpyToSymbolAsync(symbol, source, count, offset, kind, NULL);
}

cudaError_t cudaMemcpyFromSymbolAsync(void *destination, const void *symbol, size_t count, size_t offset,
                                      enum cudaMemcpyKind kind, cudaStream_t stream) {
    uint64_t address = variable_address(symbol, NULL);
    if (address == 0)
        return report(cudaErrorInvalidSymbol);
    return cudaMemcpyAsync(destination, (const char *)address + offset, count, kind, stream);
}

cudaError_t cudaMemcpyFromSymbol(void *destination, const void *symbol, size_t count, size_t offset,
                                 enum cudaMemcpyKind kind) {
    return cudaMemcpyFromSymbolAsync(destination, symbol, count, offset, kind, NULL);
}

cudaError_t cudaGetSymbolAddress(void **pointer, const void *symbol) {
    *pointer = (void *)variable_address(symbol, NULL);
    return report(*pointer == NULL ? cudaErrorInvalidSymbol : cudaSuccess);
}

cudaError_t cudaGetSymbolSize(size_t *size, const void *symbol) {
    return report(variable_address(symbol, size) == 0 ? cudaErrorInvalidSymbol : cudaSuccess);
}

/* ---- fills ---- */

cudaError_t cudaMemset2DAsync(void *pointer, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
    uint64_t byte = (uint64_t)value & 0xFF;
    return report(ASK(OP_FILL, NULL, (uint64_t)pointer, byte, 1, width, height, pitch, (uint64_t)stream));
}

cudaError_t cudaMemset2D(void *pointer, size_t pitch, int value, size_t width, size_t height) {
    return cudaMemset2DAsync(pointer, pitch, value, width, height, NULL);
}

cudaError_t cudaMemsetAsync(void *pointer, int value, size_t count, cudaStream_t stream) {
    return cudaMemset2DAsync(pointer, count, value, count, 1, stream);
}

cudaError_t cudaMemset(void *pointer, int value, size_t count) {
    return cudaMemsetAsync(pointer, value, count, NULL);
}
