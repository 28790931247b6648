/* Context, imported memory and small services of the CUDA driver; no candidate code is known here. */
#include "device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

const char *device_bind(struct device *device, void *library) {
#define CUDA_FIND(field, function, symbol)                                                                             \
    if ((*(void **)&device->cuda.field = dlsym(library, symbol)) == NULL)                                              \
        return symbol;
    CUDA_FUNCTIONS(CUDA_FIND)
    return NULL;
}

CUresult device_open(struct device *device, int ordinal) {
    CUdevice handle;
    CUcontext context;
    CUresult code = device->cuda.init(0);
    if (code == CUDA_SUCCESS)
        code = device->cuda.device_get(&handle, ordinal);
    if (code == CUDA_SUCCESS)
        code = device->cuda.retain(&context, handle);
    if (code == CUDA_SUCCESS)
        code = device->cuda.set_current(context);
    /* A blocking stream: work that a candidate puts on the null stream stays in order with it, as it would where the
     * caller uses the null stream itself. */
    if (code == CUDA_SUCCESS)
        code = device->cuda.stream_create(&device->stream, CU_STREAM_DEFAULT);
    if (code == CUDA_SUCCESS)
        code = device->cuda.alloc(&device->scratch, 256);
    device->ordinal = ordinal;
    return code;
}

CUresult device_import(struct device *device, int descriptor, uint64_t size) {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr base = 0;
    if (device->buffer_count == WIRE_BUFFERS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult code = device->cuda.import(&handle, (void *)(uintptr_t)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(descriptor);
    if (code != CUDA_SUCCESS)
        return code;
    code = device->cuda.reserve(&base, size, 0, 0, 0);
    if (code == CUDA_SUCCESS)
        code = device->cuda.map(base, size, 0, handle, 0);
    device->cuda.release(handle);
    if (code != CUDA_SUCCESS)
        return code;
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    code = device->cuda.set_access(base, size, &access, 1);
    if (code != CUDA_SUCCESS)
        return code;
    device->buffers[device->buffer_count] = base;
    device->sizes[device->buffer_count++] = size;
    return CUDA_SUCCESS;
}

CUresult device_trivial_work(const struct device *device) {
    CUresult code = device->cuda.set_words(device->scratch, 0, 1, device->stream);
    return code == CUDA_SUCCESS ? device->cuda.synchronize() : code;
}

CUresult device_reset_l2(const struct device *device) {
    CUresult code = device->cuda.reset_l2();
    return code == CUDA_SUCCESS ? device->cuda.set_limit(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0) : code;
}

void device_error_name(const struct device *device, CUresult code, char *name, size_t size) {
    const char *text = NULL;
    if (device->cuda.error_name == NULL || device->cuda.error_name(code, &text) != CUDA_SUCCESS || text == NULL)
        text = "CUDA_ERROR_UNKNOWN_CODE";
    snprintf(name, size, "%s", text);
}
