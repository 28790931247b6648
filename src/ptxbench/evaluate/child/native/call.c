/* Builds TVM-FFI arguments from the judge's order and makes the call; no policy and no measuring. */
#include "call.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

const char *ffi_bind(struct ffi *ffi, void *library) {
    if ((*(void **)&ffi->set_stream = dlsym(library, "TVMFFIEnvSetStream")) == NULL)
        return "TVMFFIEnvSetStream";
    if ((*(void **)&ffi->take_error = dlsym(library, "TVMFFIErrorMoveFromRaised")) == NULL)
        return "TVMFFIErrorMoveFromRaised";
    if ((*(void **)&ffi->release = dlsym(library, "TVMFFIObjectDecRef")) == NULL)
        return "TVMFFIObjectDecRef";
    return NULL;
}

static CUdeviceptr address_of(const struct device *device, const struct wire_argument *argument) {
    if (argument->buffer >= device->buffer_count || argument->offset > device->sizes[argument->buffer] ||
        argument->bytes > device->sizes[argument->buffer] - argument->offset)
        return 0;
    return device->buffers[argument->buffer] + argument->offset;
}

int tensors_build(struct tensors *tensors, const struct device *device, const struct wire_call *order) {
    if (order->count > WIRE_ARGUMENTS)
        return -1;
    memset(tensors, 0, sizeof *tensors);
    tensors->count = order->count;
    for (uint32_t i = 0; i < order->count; i++) {
        const struct wire_argument *argument = &order->arguments[i];
        CUdeviceptr address = address_of(device, argument);
        if (address == 0 || argument->dimensions > WIRE_DIMENSIONS)
            return -1;
        int64_t stride = 1;
        for (int d = (int)argument->dimensions - 1; d >= 0; d--) {
            tensors->strides[i][d] = stride;
            stride *= argument->shape[d];
        }
        tensors->views[i] = (DLTensor){
            .data = (void *)address,
            .device = {kDLCUDA, device->ordinal},
            .ndim = (int32_t)argument->dimensions,
            .dtype = {argument->dtype_code, argument->dtype_bits, argument->dtype_lanes},
            .shape = (int64_t *)argument->shape,
            .strides = tensors->strides[i],
        };
        tensors->values[i].type_index = kTVMFFIDLTensorPtr;
        tensors->values[i].v_ptr = &tensors->views[i];
    }
    return 0;
}

CUresult staging_enter(struct staging *staging, struct tensors *tensors, const struct device *device,
                       const struct wire_call *order) {
    for (uint32_t i = 0; i < order->count; i++) {
        uint64_t bytes = order->arguments[i].bytes;
        CUresult code = CUDA_SUCCESS;
        if (staging->bytes[i] != bytes) {
            if (staging->bytes[i] != 0)
                device->cuda.free(staging->pointers[i]);
            staging->bytes[i] = 0;
            code = device->cuda.alloc(&staging->pointers[i], bytes);
            if (code != CUDA_SUCCESS)
                return code;
            staging->bytes[i] = bytes;
        }
        code = device->cuda.copy(staging->pointers[i], address_of(device, &order->arguments[i]), bytes);
        if (code != CUDA_SUCCESS)
            return code;
        tensors->views[i].data = (void *)staging->pointers[i];
    }
    return device->cuda.synchronize();
}

CUresult staging_leave(const struct staging *staging, const struct device *device, const struct wire_call *order) {
    CUresult code = CUDA_SUCCESS;
    for (uint32_t i = 0; code == CUDA_SUCCESS && i < order->count; i++)
        code = device->cuda.copy(address_of(device, &order->arguments[i]), staging->pointers[i], staging->bytes[i]);
    return code == CUDA_SUCCESS ? device->cuda.synchronize() : code;
}

static void error_text(const struct ffi *ffi, char *text, size_t size) {
    TVMFFIObjectHandle error = NULL;
    ffi->take_error(&error);
    if (error == NULL) {
        snprintf(text, size, "no error was set");
        return;
    }
    const TVMFFIErrorCell *cell = (const TVMFFIErrorCell *)((const char *)error + sizeof(TVMFFIObject));
    snprintf(text, size, "%.*s: %.*s", (int)(cell->kind.size < 64 ? cell->kind.size : 64), cell->kind.data,
             (int)(cell->message.size < size ? cell->message.size : size), cell->message.data);
    ffi->release(error);
}

int ffi_call(const struct ffi *ffi, TVMFFISafeCallType function, const struct tensors *tensors, char *text,
             size_t size) {
    TVMFFIAny result = {.type_index = kTVMFFINone};
    int code = function(NULL, tensors->values, (int32_t)tensors->count, &result);
    if (code != 0)
        error_text(ffi, text, size);
    else if (result.type_index >= kTVMFFIStaticObjectBegin)
        ffi->release(result.v_ptr);
    return code;
}
