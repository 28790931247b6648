/* One call of the candidate's function by the TVM-FFI C ABI. */
#ifndef PTXBENCH_CALL_H
#define PTXBENCH_CALL_H

#include <tvm/ffi/c_api.h>
#include <tvm/ffi/extra/c_env_api.h>

#include "device.h"

struct ffi {
    __typeof__(TVMFFIEnvSetStream) *set_stream;
    __typeof__(TVMFFIErrorMoveFromRaised) *take_error;
    __typeof__(TVMFFIObjectDecRef) *release;
};

/* Exact-size allocations that stand for the judge's buffers under a tool; kept from call to call. */
struct staging {
    CUdeviceptr pointers[WIRE_ARGUMENTS];
    uint64_t bytes[WIRE_ARGUMENTS];
};

/* The tensors of one call, in memory that outlives it. */
struct tensors {
    uint32_t count;
    DLTensor views[WIRE_ARGUMENTS];
    int64_t strides[WIRE_ARGUMENTS][WIRE_DIMENSIONS];
    TVMFFIAny values[WIRE_ARGUMENTS];
};

/* Returns NULL, or the name of a function that `library` lacks. */
const char *ffi_bind(struct ffi *ffi, void *library);

/* Contiguous row-major views of the judge's buffers. Returns 0, or -1 where the order makes no sense. */
int tensors_build(struct tensors *tensors, const struct device *device, const struct wire_call *order);

/* Point the views at exact-size copies filled from the judge's buffers. */
CUresult staging_enter(struct staging *staging, struct tensors *tensors, const struct device *device,
                       const struct wire_call *order);

/* Write every copy back, inputs too, so that the judge sees what was changed. */
CUresult staging_leave(const struct staging *staging, const struct device *device, const struct wire_call *order);

/* Call; on a nonzero return the error's text stands in `text`. */
int ffi_call(const struct ffi *ffi, TVMFFISafeCallType function, const struct tensors *tensors, char *text,
             size_t size);

#endif
