/* The messages between the judge and a candidate process: one fixed struct per datagram, native byte order.
 *
 * `wire.py` holds the same layout; `candidate --print-layout` prints this one so that a test can compare them. */
#ifndef PTXBENCH_WIRE_H
#define PTXBENCH_WIRE_H

#include <stdint.h>

#include "span_result.h"

#define WIRE_MAGIC 0x50545842u
#define WIRE_VERSION 1
#define WIRE_PATH 512
#define WIRE_SYMBOL 128
#define WIRE_TEXT 1024
#define WIRE_HIDDEN 4
#define WIRE_NEEDED 2
#define WIRE_ARGUMENTS 16
#define WIRE_DIMENSIONS 8
#define WIRE_BUFFERS 256

enum wire_kind {
    /* judge to candidate */
    WIRE_SETUP = 1,
    WIRE_MAP = 2,
    WIRE_READY = 3,
    WIRE_LOAD = 4,
    WIRE_CALL = 5,
    WIRE_CALIBRATE = 6,
    WIRE_RESET_L2 = 7,
    WIRE_QUIT = 8,
    /* candidate to judge */
    WIRE_PROGRESS = 32,
    WIRE_PROTECTION = 33,
    WIRE_NAME = 34,
    WIRE_MODULE = 35,
    WIRE_SPANS = 36,
    WIRE_DONE = 37,
};

enum wire_phase {
    PHASE_STARTED = 0,
    PHASE_CONNECTED = 1,
    PHASE_SANDBOXED = 2,
    PHASE_CONTEXT = 3,
    PHASE_MEMORY = 4,
    PHASE_READY = 5,
    PHASE_LOADING = 6,
    PHASE_LOADED = 7,
    PHASE_CALLING = 8,
    PHASE_RETURNED = 9,
};

enum wire_status {
    STATUS_OK = 0,
    STATUS_LIBRARY = 1,     /* a trusted library could not be loaded; `text` names it */
    STATUS_CUDA = 2,        /* `cuda_error` and `cuda_name` say which */
    STATUS_LOAD_FAILED = 3, /* the candidate's shared object */
    STATUS_NO_SYMBOL = 4,
    STATUS_RAISED = 5,      /* the candidate returned an error; `text` is its message */
    STATUS_INSTRUMENT = 6,  /* CUPTI; `cuda_error` and `cuda_name` are CUPTI's */
    STATUS_PROTOCOL = 7,    /* the judge sent what this program does not know */
    STATUS_SANDBOX = 8,
};

enum setup_flags {
    SETUP_STAGED = 1,
    SETUP_KEEP_ROOT = 2,
    SETUP_UNDER_TOOL = 4,
    SETUP_REPLAY = 8, /* the descriptor is a replay program (program.h), and no library of the candidate is loaded */
};

struct wire_header {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;
    uint32_t sequence;
    uint32_t size; /* of the whole message */
};

/* Comes with one descriptor, open for reading: the candidate's shared object, or a replay program. */
struct wire_setup {
    struct wire_header header;
    int32_t device;
    uint32_t flags;
    uint32_t hidden_count;
    uint32_t reserved;
    char cuda[WIRE_PATH];
    char cudart[WIRE_PATH];
    char tvm_ffi[WIRE_PATH];
    char spans[WIRE_PATH];
    char cupti[WIRE_PATH];
    char symbol[WIRE_SYMBOL];
    char hidden[WIRE_HIDDEN][WIRE_PATH];
    char needed[WIRE_NEEDED][WIRE_PATH]; /* folders to be kept in sight below hidden ones; may be empty */
};

/* Comes with one descriptor: an exported allocation of `size` bytes. */
struct wire_map {
    struct wire_header header;
    uint64_t size;
};

struct wire_argument {
    uint32_t buffer;
    uint8_t dtype_code;
    uint8_t dtype_bits;
    uint16_t dtype_lanes;
    uint64_t offset;
    uint64_t bytes;
    uint32_t dimensions;
    uint32_t reserved;
    int64_t shape[WIRE_DIMENSIONS];
};

struct wire_call {
    struct wire_header header;
    uint32_t count;
    uint32_t reserved;
    struct wire_argument arguments[WIRE_ARGUMENTS];
};

struct wire_order {
    struct wire_header header;
};

struct wire_progress {
    struct wire_header header;
    uint32_t phase;
    uint32_t reserved;
    uint64_t host_ns;
};

struct wire_protection {
    struct wire_header header;
    int32_t error; /* errno, 0 where it is active or left out on purpose */
    uint32_t active;
    char name[32];
    char reason[96];
};

struct wire_name {
    struct wire_header header;
    uint32_t index;
    uint32_t length;
    char text[SPAN_NAME];
};

struct wire_module {
    struct wire_header header;
    uint64_t bytes;
    uint8_t sha256[32];
};

struct wire_spans {
    struct wire_header header;
    struct span_result result;
};

struct wire_done {
    struct wire_header header;
    int32_t status;
    int32_t cuda_error;
    uint64_t host_ns; /* what the command itself took */
    char cuda_name[64];
    char text[WIRE_TEXT];
};

#endif
