/* What the stub libraries share with the host program: one question at a time to the Python side, and the kernels that
 * the candidate registered. Everything here is defined in the program itself, which exports it to the libraries. */
#ifndef PTXBENCH_BRIDGE_H
#define PTXBENCH_BRIDGE_H

#include <stddef.h>
#include <stdint.h>

/* Numbers of the questions; the Python side has the same list (host/wire.py). */
enum op {
    OP_START = 1, OP_ENDED, OP_UNSUPPORTED, OP_KERNEL, OP_VARIABLE, OP_LAUNCH, OP_KERNEL_SET, OP_KERNEL_GET,
    OP_OCCUPANCY, OP_ALLOCATE, OP_FREE, OP_COPY, OP_FILL, OP_STREAM, OP_EVENT, OP_ATTRIBUTE, OP_ENCODE, OP_MEMORY,
    OP_CALL, OP_HINT, OP_POOL,
};

enum { STREAM_CREATE, STREAM_DESTROY, STREAM_SYNCHRONIZE, STREAM_WAIT, STREAM_CALLBACK };
enum { EVENT_CREATE, EVENT_DESTROY, EVENT_RECORD, EVENT_SYNCHRONIZE };
enum { COPY_TO_DEVICE = 1, COPY_TO_HOST = 2, COPY_ON_DEVICE = 3, COPY_DEFAULT = 4 };
enum { LAUNCH_COOPERATIVE = 1, LAUNCH_PROGRAMMATIC = 2 };

#define BRIDGE_WORDS 512
#define GIVEN_STREAM 3 /* the stream that the caller hands over; smaller numbers are CUDA's own default streams */
#define EVERY_STREAM UINT64_MAX

/* The descriptor of the socket. */
extern int bridge_socket;

struct question {
    enum op op;
    const uint64_t *words;
    uint32_t count;
    const void *bytes;
    uint64_t size;
    void *answer; /* where the answer's bytes go, `room` of them at most */
    uint64_t room;
};

struct answer {
    uint64_t words[BRIDGE_WORDS];
    uint32_t count;
    uint64_t size;
};

/* Returns the CUDA error code of the answer; ends the process when the other side is gone. */
int bridge_ask(const struct question *question, struct answer *answer);

/* The same for questions of words alone; `result` gets the answer's first word unless it is NULL. */
int bridge_words(enum op op, uint64_t *result, uint32_t count, const uint64_t *words);
#define ASK(op, result, ...)                                                                                           \
    bridge_words(op, result, sizeof((uint64_t[]){__VA_ARGS__}) / 8, (uint64_t[]){__VA_ARGS__})
/* The same for a question that is one name. */
int bridge_name(enum op op, const char *name, uint64_t word, struct answer *answer);

/* Notes that the candidate called what a GPU-less machine cannot give; returns cudaErrorNotSupported. */
int bridge_unsupported(const char *name);

/* Notes a setting that changes no result, but perhaps the time. */
void bridge_hint(const char *name);

struct kernel {
    const void *host; /* the address by which the candidate's host code knows it */
    const char *name;
    uint64_t number; /* 0 until the Python side was asked */
    uint32_t parameters;
    uint32_t sizes[BRIDGE_WORDS];
};

void kernel_register(const void *host, const char *name);
/* By host address or by itself; NULL when the candidate has no such kernel. */
struct kernel *kernel_find(const void *key);

struct launch {
    uint64_t grid[3], block[3], cluster[3], shared, stream, flags;
};
int kernel_launch(const void *key, const struct launch *launch, void **arguments);

struct copy {
    uint64_t kind, destination, source, width, height, destination_pitch, source_pitch, stream;
};
int memory_copy(const struct copy *copy);

int map_encode(const uint64_t *words, uint32_t count, void *map);

/* A function of the stub driver, newest version first; NULL when there is none. */
void *driver_symbol(const char *name);
#endif
