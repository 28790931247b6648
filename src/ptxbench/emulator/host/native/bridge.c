/* Questions over the socket, and the candidate's kernels; the meaning of every call is decided on the Python side. */
#define _GNU_SOURCE
#include "bridge.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_KERNELS 4096
#define ERROR_INVALID_VALUE 1
#define ERROR_INVALID_FUNCTION 98
#define ERROR_NOT_SUPPORTED 801
#define EXIT_NO_JUDGE 120

struct header {
    uint32_t op, words;
    uint64_t bytes;
};

int bridge_socket = -1;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kernel *kernels[MAX_KERNELS];
static size_t kernel_count;

static void send_all(const void *data, size_t size) {
    for (const char *at = data; size > 0;) {
        ssize_t sent = write(bridge_socket, at, size);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            _exit(EXIT_NO_JUDGE);
        at += sent;
        size -= (size_t)sent;
    }
}

static void receive_all(void *data, size_t size) {
    for (char *at = data; size > 0;) {
        ssize_t got = read(bridge_socket, at, size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            _exit(EXIT_NO_JUDGE);
        at += got;
        size -= (size_t)got;
    }
}

static void drop(size_t size) {
    char nowhere[4096];
    while (size > 0) {
        size_t part = size < sizeof nowhere ? size : sizeof nowhere;
        receive_all(nowhere, part);
        size -= part;
    }
}

int bridge_ask(const struct question *question, struct answer *answer) {
    struct header header = {question->op, question->count, question->size};
    pthread_mutex_lock(&lock);
    send_all(&header, sizeof header);
    send_all(question->words, 8 * (size_t)question->count);
    send_all(question->bytes, question->size);
    receive_all(&header, sizeof header);
    answer->count = header.words < BRIDGE_WORDS ? header.words : BRIDGE_WORDS;
    receive_all(answer->words, 8 * (size_t)answer->count);
    drop(8 * (size_t)(header.words - answer->count));
    answer->size = header.bytes < question->room ? header.bytes : question->room;
    receive_all(question->answer, answer->size);
    drop(header.bytes - answer->size);
    pthread_mutex_unlock(&lock);
    return (int)header.op;
}

int bridge_words(enum op op, uint64_t *result, uint32_t count, const uint64_t *words) {
    struct question question = {.op = op, .words = words, .count = count};
    struct answer answer;
    int code = bridge_ask(&question, &answer);
    if (result != NULL)
        *result = answer.count > 0 ? answer.words[0] : 0;
    return code;
}

int bridge_name(enum op op, const char *name, uint64_t word, struct answer *answer) {
    struct question question = {.op = op, .words = &word, .count = 1, .bytes = name, .size = strlen(name)};
    return bridge_ask(&question, answer);
}

int bridge_unsupported(const char *name) {
    struct answer answer;
    bridge_name(OP_UNSUPPORTED, name, 0, &answer);
    return ERROR_NOT_SUPPORTED;
}

void bridge_hint(const char *name) {
    struct answer answer;
    bridge_name(OP_HINT, name, 0, &answer);
}

void kernel_register(const void *host, const char *name) {
    struct kernel *kernel = calloc(1, sizeof *kernel);
    pthread_mutex_lock(&lock);
    if (kernel != NULL && kernel_count < MAX_KERNELS) {
        kernel->host = host;
        kernel->name = name;
        kernels[kernel_count++] = kernel;
    }
    pthread_mutex_unlock(&lock);
}

static int kernel_learn(struct kernel *kernel) {
    struct answer answer;
    int code = bridge_name(OP_KERNEL, kernel->name, 0, &answer);
    if (code != 0)
        return code;
    for (; kernel->parameters + 1 < answer.count; kernel->parameters++)
        kernel->sizes[kernel->parameters] = (uint32_t)answer.words[kernel->parameters + 1];
    kernel->number = answer.words[0];
    return 0;
}

struct kernel *kernel_find(const void *key) {
    for (size_t i = 0; i < kernel_count; i++)
        if (kernels[i]->host == key || kernels[i] == key) {
            if (kernels[i]->number == 0 && kernel_learn(kernels[i]) != 0)
                return NULL;
            return kernels[i];
        }
    return NULL;
}

int kernel_launch(const void *key, const struct launch *launch, void **arguments) {
    struct kernel *kernel = kernel_find(key);
    if (kernel == NULL)
        return ERROR_INVALID_FUNCTION;
    unsigned char bytes[1 << 15];
    size_t size = 0;
    for (uint32_t i = 0; i < kernel->parameters; i++) {
        if (size + kernel->sizes[i] > sizeof bytes)
            return ERROR_INVALID_VALUE;
        memcpy(bytes + size, arguments[i], kernel->sizes[i]);
        size += kernel->sizes[i];
    }
    const uint64_t *g = launch->grid, *b = launch->block, *c = launch->cluster;
    const uint64_t words[] = {kernel->number, g[0], g[1], g[2], b[0], b[1], b[2], c[0],
                              c[1], c[2], launch->shared, launch->stream, launch->flags};
    struct question question = {
        .op = OP_LAUNCH, .words = words, .count = sizeof words / 8, .bytes = bytes, .size = size};
    struct answer answer;
    return bridge_ask(&question, &answer);
}

/* Host bytes stand dense in the message, row by row. */
int memory_copy(const struct copy *copy) {
    struct answer answer;
    uint64_t kind = copy->kind, size = copy->width * copy->height;
    const uint64_t range[] = {copy->destination, copy->source};
    if (kind == COPY_DEFAULT && bridge_words(OP_MEMORY, &kind, 2, range) != 0)
        return ERROR_INVALID_VALUE;
    const uint64_t words[] = {kind, copy->destination, copy->source, copy->width,
                              copy->height, copy->destination_pitch, copy->source_pitch, copy->stream};
    struct question question = {.op = OP_COPY, .words = words, .count = sizeof words / 8};
    if (kind == COPY_ON_DEVICE || size == 0)
        return bridge_ask(&question, &answer);
    char *dense = malloc(size);
    if (dense == NULL)
        return 2; /* cudaErrorMemoryAllocation */
    int inwards = kind == COPY_TO_DEVICE;
    for (uint64_t row = 0; inwards && row < copy->height; row++)
        memcpy(dense + row * copy->width, (char *)copy->source + row * copy->source_pitch, copy->width);
    question.bytes = dense;
    question.size = inwards ? size : 0;
    question.answer = dense;
    question.room = inwards ? 0 : size;
    int code = bridge_ask(&question, &answer);
    for (uint64_t row = 0; !inwards && code == 0 && answer.size == size && row < copy->height; row++)
        memcpy((char *)copy->destination + row * copy->destination_pitch, dense + row * copy->width, copy->width);
    free(dense);
    return code;
}

int map_encode(const uint64_t *words, uint32_t count, void *map) {
    char record[128];
    struct question question = {.op = OP_ENCODE, .words = words, .count = count, .answer = record, .room = 128};
    struct answer answer;
    int code = bridge_ask(&question, &answer);
    if (code == 0 && answer.size == sizeof record)
        memcpy(map, record, sizeof record);
    return code;
}

void *driver_symbol(const char *name) {
    static const char *const suffixes[] = {"_v3", "_v2", ""};
    void *library = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_NOW), *found = NULL;
    for (size_t i = 0; library != NULL && found == NULL && i < 3; i++) {
        char versioned[256];
        snprintf(versioned, sizeof versioned, "%s%s", name, suffixes[i]);
        found = dlsym(library, versioned);
    }
    return found;
}
