/* The orders of the judge, carried out one after another. */
#ifndef PTXBENCH_SERVE_H
#define PTXBENCH_SERVE_H

#include "channel.h"
#include "replay.h"
#include "sandbox.h"
#include "spans.h"

struct instrument {
    int wanted;
    __typeof__(spans_open) *open;
    __typeof__(spans_begin) *begin;
    __typeof__(spans_end) *end;
    __typeof__(spans_name) *name;
    __typeof__(spans_module) *module;
    __typeof__(spans_code_name) *code_name;
    uint32_t names_sent;
    uint32_t modules_sent;
};

struct candidate {
    struct channel channel;
    struct wire_setup setup;
    struct sandbox_policy policy;
    struct protections protections;
    size_t protections_sent;
    struct device device;
    struct ffi ffi;
    struct instrument instrument;
    struct staging staging;
    struct tensors tensors;
    struct replay replay;
    int image; /* the candidate's shared object or its replay program, a sealed copy in memory */
    int loaded;
    TVMFFISafeCallType function; /* NULL where calls are replayed */
};

/* Protections that were decided since the last time this was called. */
void report_protections(struct candidate *self);

/* Load the trusted libraries that the setup names. On failure `done` says which and why. Returns 0 or -1. */
int load_trusted(struct candidate *self, struct wire_done *done);

/* Start the activity instrument, where one was asked for. Returns 0 or -1 with `done` filled in. */
int open_instrument(struct candidate *self, struct wire_done *done);

/* Copy the file behind `descriptor` into sealed memory: what runs is what the judge opened. */
int keep_image(int descriptor);

void fail_cuda(const struct candidate *self, CUresult code, struct wire_done *done);

/* Serve until the judge quits or goes away. */
void serve(struct candidate *self);

#endif
