/* What the activity instrument hands out; shared by spans.c, the wire and the judge's ctypes. */
#ifndef PTXBENCH_SPAN_RESULT_H
#define PTXBENCH_SPAN_RESULT_H

#include <stdint.h>

#define SPAN_ENTRIES 256
#define SPAN_NAME 4096
#define SPAN_NO_NAME 0xffffffffu

enum span_kind {
    SPAN_KERNEL = 0,
    SPAN_COPY = 1,
    SPAN_SET = 2,
};

struct span_entry {
    uint64_t start;
    uint64_t end;
    uint32_t kind;
    uint32_t name; /* index into the name table, SPAN_NO_NAME for copies and sets */
    uint32_t stream;
    uint32_t graph;
};

/* All times in CUPTI's nanoseconds. */
struct span_result {
    uint64_t window_begin;
    uint64_t window_end;
    uint64_t first_start;
    uint64_t last_end;
    uint32_t records;  /* believable ones in the window */
    uint32_t dropped;  /* lost by CUPTI */
    uint32_t absurd;   /* without times, inverted, or far outside the window */
    uint32_t strays;   /* work that ran between two windows */
    uint32_t listed;   /* of `records`, how many stand in `entries` */
    uint32_t nameless; /* kernels whose name found no room in the table */
    uint32_t names;    /* length of the name table now */
    uint32_t modules;  /* length of the module table now */
    struct span_entry entries[SPAN_ENTRIES];
};

struct span_module {
    uint64_t bytes;
    uint8_t sha256[32];
};

struct span_failure {
    int32_t code; /* CUPTI's, or -1 where the library itself is missing */
    int32_t reserved;
    char name[64];
    char text[256];
};

#endif
