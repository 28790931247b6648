/* A replay program in memory: the recorded calls of a candidate, as `evaluate/replay.py` wrote them.
 *
 * The file is a row of 64-bit little-endian words:
 *     magic, version
 *     cubins:     count, then of each its size in bytes and the bytes, padded with zeros to whole words
 *     kernels:    count, then of each its cubin's number, and its name as bytes
 *     workloads:  count, then of each
 *         arguments: count, then of each DLPack's type code and bits, rank, shape
 *         allocations: count; streams: count, flags of each; events: count, flags of each
 *         calls: count, then of each its steps: count, then of each
 *             code, count of words, words, count of pieces, then of each piece
 *                 size and bytes; patches: count, four words each; maps: count, 44 words each
 * Places (an argument or an allocation, and bytes from its start) are three words: kind, index, addend. */
#ifndef PTXBENCH_PROGRAM_H
#define PTXBENCH_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#define PROGRAM_MAGIC 0x79616c7065527450u
#define PROGRAM_VERSION 1
#define PROGRAM_NONE UINT64_MAX /* no stream */
#define PROGRAM_STREAMS 4       /* streams that exist anyway: null, legacy, of the thread, the judge's */
#define PROGRAM_MAP_BYTES 128

enum place_kind { PLACE_ARGUMENT, PLACE_ALLOCATION, PLACE_KINDS };

enum step_code {
    STEP_LAUNCH, STEP_COPY_IN, STEP_COPY, STEP_FILL, STEP_ALLOCATE, STEP_SYMBOL, STEP_FREE, STEP_RECORD, STEP_WAIT,
    STEP_WAIT_STREAM, STEP_WAIT_EVENT, STEP_WAIT_ALL, STEP_ATTRIBUTE, STEP_POOL, STEP_CODES,
};

enum launch_flags { LAUNCH_COOPERATIVE = 1, LAUNCH_PROGRAMMATIC = 2 };

struct place {
    uint64_t kind, index, addend;
};

struct patch {
    uint64_t offset;
    struct place place;
};

/* A tensor map to encode at `offset`. Words: whether it is im2col, type, rank, 0, interleave, swizzle, L2, fill,
 * channels, pixels, then five each of sizes, strides, box, steps, lower and upper corner. */
struct map {
    uint64_t offset;
    struct place place;
    uint64_t words[40];
};

struct piece {
    uint64_t size, patch_count, map_count;
    unsigned char *bytes;
    const struct patch *patches;
    const struct map *maps;
};

struct step {
    uint64_t code, piece_count;
    const uint64_t *words;
    struct piece *pieces;
    void **parameters; /* the pieces' bytes */
};

struct calls {
    uint64_t count;
    struct step *steps;
};

struct table {
    uint64_t count;
    const uint64_t *words;
};

struct shape {
    uint64_t code, bits;
    struct table sizes;
};

struct workload {
    uint64_t argument_count, allocation_count, call_count;
    struct shape *arguments;
    struct table streams, events; /* flags */
    struct calls *calls;
};

struct kernel {
    uint64_t cubin;
    const char *name;
};

struct program {
    uint64_t cubin_count, kernel_count, workload_count;
    const void **cubins;
    struct kernel *kernels;
    struct workload *workloads;
};

/* Map the file behind `descriptor` and find its parts; every number in it is checked. Returns 0, or -1 where it is no
 * program. */
int program_open(struct program *program, int descriptor);

#endif
