/* Shared by the files of the stub CUDA runtime. */
#ifndef PTXBENCH_CUDART_H
#define PTXBENCH_CUDART_H

#include <cuda_runtime_api.h>

#include "bridge.h"

/* Keeps a failure for cudaGetLastError, and returns it. */
cudaError_t report(int code);

/* Device address of a `__device__` variable, 0 when there is none. */
uint64_t variable_address(const void *host, size_t *size);

/* What attributes say of a launch; returns an error for those that cannot be recorded. */
int launch_attributes(const cudaLaunchAttribute *attributes, unsigned count, struct launch *launch);
#endif
