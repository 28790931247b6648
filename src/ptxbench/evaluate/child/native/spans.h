/* The activity instrument: which kernels, copies and sets ran between two moments, by CUPTI, over all streams. */
#ifndef PTXBENCH_SPANS_H
#define PTXBENCH_SPANS_H

#include "span_result.h"

/* Load CUPTI from `cupti` (a path) and start recording. `hash_modules`: also hash every cubin that gets loaded from now
 * on. Returns 0, or -1 with the reason in `failure`. Once per process. */
int spans_open(const char *cupti, int hash_modules, struct span_failure *failure);

/* Open a window. What ran since the last one closed counts as strays of this one. Returns a CUPTI code. */
int spans_begin(void);

/* Close the window; the device must be idle. Returns a CUPTI code. */
int spans_end(struct span_result *result);

/* Entry `index` of the table of kernel names (mangled), or NULL. */
const char *spans_name(uint32_t index);

/* Entry `index` of the table of loaded cubins. Returns 0, or -1 past its end. */
int spans_module(uint32_t index, struct span_module *module);

/* Name of a CUPTI code, "" while CUPTI is not loaded. */
const char *spans_code_name(int code);

/* CUPTI's version, 0 while it is not loaded. */
uint32_t spans_version(void);

#endif
