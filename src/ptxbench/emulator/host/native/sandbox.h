#ifndef PTXBENCH_HOST_SANDBOX_H
#define PTXBENCH_HOST_SANDBOX_H

/* Limits and a system call filter, for good. Returns 0, or -1 with errno. Files are confined by whoever started us. */
int sandbox_enter(void);
#endif
