/* Reads a replay program: structure and bounds; nothing of it is carried out here. */
#include "program.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MOST 65536 /* of anything that is counted */

/* Fields of each step's words: k kernel, s stream, o stream or none, e event, a allocation, p place, n number. */
static const char *const FIELDS[STEP_CODES] = {
    [STEP_LAUNCH] = "knnnnnnnnnnsn", [STEP_COPY_IN] = "pnnns", [STEP_COPY] = "pnpnnns",     [STEP_FILL] = "pnnnnns",
    [STEP_ALLOCATE] = "ano",         [STEP_SYMBOL] = "a",      [STEP_FREE] = "po",          [STEP_RECORD] = "es",
    [STEP_WAIT] = "es",              [STEP_WAIT_STREAM] = "s", [STEP_WAIT_EVENT] = "e",     [STEP_WAIT_ALL] = "",
    [STEP_ATTRIBUTE] = "knn",        [STEP_POOL] = "nn",
};

struct reader {
    uint64_t *at, *end;
    int broken;
};

static uint64_t *span(struct reader *reader, uint64_t words) {
    uint64_t *start = reader->at;
    if (reader->broken || words > (uint64_t)(reader->end - reader->at)) {
        reader->broken = 1;
        return NULL;
    }
    reader->at += words;
    return start;
}

static uint64_t take(struct reader *reader) {
    const uint64_t *word = span(reader, 1);
    return word == NULL ? 0 : *word;
}

static uint64_t count(struct reader *reader) {
    uint64_t number = take(reader);
    if (number > MOST)
        reader->broken = 1;
    return reader->broken ? 0 : number;
}

/* A count and room for as many zeroed things of `size` bytes. */
static void *room(struct reader *reader, uint64_t *number, size_t size) {
    *number = count(reader);
    void *things = calloc(*number + 1, size);
    if (things == NULL)
        reader->broken = 1;
    return things;
}

static unsigned char *bytes(struct reader *reader, uint64_t *size) {
    *size = take(reader);
    if (*size > UINT32_MAX)
        reader->broken = 1;
    return (unsigned char *)span(reader, (*size + 7) / 8);
}

static const char *text(struct reader *reader) {
    uint64_t size;
    const char *start = (const char *)bytes(reader, &size);
    if (start == NULL || size == 0 || start[size - 1] != '\0') {
        reader->broken = 1;
        return "";
    }
    return start;
}

static struct table table(struct reader *reader) {
    struct table all = {.count = count(reader)};
    all.words = span(reader, all.count);
    return all;
}

static void check_place(struct reader *reader, const struct workload *workload, const uint64_t *words) {
    uint64_t most = words[0] == PLACE_ARGUMENT ? workload->argument_count : workload->allocation_count;
    if (words[0] >= PLACE_KINDS || words[1] >= most)
        reader->broken = 1;
}

static int fits(char field, uint64_t word, const struct program *program, const struct workload *workload) {
    switch (field) {
    case 'k':
        return word < program->kernel_count;
    case 'o':
        return word == PROGRAM_NONE || word < PROGRAM_STREAMS + workload->streams.count;
    case 's':
        return word < PROGRAM_STREAMS + workload->streams.count;
    case 'e':
        return word < workload->events.count;
    case 'a':
        return word < workload->allocation_count;
    default:
        return 1;
    }
}

static void check_words(struct reader *reader, const struct program *program, const struct workload *workload,
                        const struct step *step, uint64_t words) {
    const uint64_t *at = step->words, *end = at + words;
    for (const char *field = FIELDS[step->code]; *field != '\0' && !reader->broken; field++) {
        uint64_t size = *field == 'p' ? 3 : 1;
        if ((uint64_t)(end - at) < size)
            reader->broken = 1;
        else if (size == 3)
            check_place(reader, workload, at);
        else if (!fits(*field, *at, program, workload))
            reader->broken = 1;
        at += size;
    }
    if (at != end)
        reader->broken = 1;
}

static void read_piece(struct reader *reader, const struct workload *workload, struct piece *piece) {
    piece->bytes = bytes(reader, &piece->size);
    piece->patch_count = count(reader);
    piece->patches = (const struct patch *)span(reader, piece->patch_count * sizeof(struct patch) / 8);
    piece->map_count = count(reader);
    piece->maps = (const struct map *)span(reader, piece->map_count * sizeof(struct map) / 8);
    for (uint64_t i = 0; !reader->broken && i < piece->patch_count; i++) {
        check_place(reader, workload, &piece->patches[i].place.kind);
        if (piece->size < 8 || piece->patches[i].offset > piece->size - 8)
            reader->broken = 1;
    }
    for (uint64_t i = 0; !reader->broken && i < piece->map_count; i++) {
        check_place(reader, workload, &piece->maps[i].place.kind);
        if (piece->size < PROGRAM_MAP_BYTES || piece->maps[i].offset > piece->size - PROGRAM_MAP_BYTES)
            reader->broken = 1;
    }
}

/* What a step needs of its pieces beside places within bounds. */
static int pieces_fit(const struct step *step) {
    const struct piece *first = step->pieces;
    if (step->code == STEP_LAUNCH)
        return 1;
    if (step->code == STEP_SYMBOL)
        return step->piece_count == 1 && first->size > 0 && first->bytes[first->size - 1] == '\0';
    if (step->code != STEP_COPY_IN)
        return step->piece_count == 0;
    uint64_t width = step->words[4], height = step->words[5];
    return step->piece_count == 1 && width > 0 && first->size % width == 0 && first->size / width == height;
}

static void read_step(struct reader *reader, const struct program *program, const struct workload *workload,
                      struct step *step) {
    step->code = take(reader);
    uint64_t words = count(reader);
    step->words = span(reader, words);
    if (reader->broken || step->code >= STEP_CODES) {
        reader->broken = 1;
        return;
    }
    check_words(reader, program, workload, step, words);
    step->pieces = room(reader, &step->piece_count, sizeof *step->pieces);
    step->parameters = calloc(step->piece_count + 1, sizeof *step->parameters);
    if (step->parameters == NULL)
        reader->broken = 1;
    for (uint64_t i = 0; !reader->broken && i < step->piece_count; i++) {
        read_piece(reader, workload, &step->pieces[i]);
        step->parameters[i] = step->pieces[i].bytes;
    }
    if (!reader->broken && !pieces_fit(step))
        reader->broken = 1;
}

static void read_workload(struct reader *reader, const struct program *program, struct workload *workload) {
    workload->arguments = room(reader, &workload->argument_count, sizeof *workload->arguments);
    for (uint64_t i = 0; !reader->broken && i < workload->argument_count; i++) {
        workload->arguments[i].code = take(reader);
        workload->arguments[i].bits = take(reader);
        workload->arguments[i].sizes = table(reader);
    }
    workload->allocation_count = count(reader);
    workload->streams = table(reader);
    workload->events = table(reader);
    workload->calls = room(reader, &workload->call_count, sizeof *workload->calls);
    for (uint64_t i = 0; !reader->broken && i < workload->call_count; i++) {
        struct calls *call = &workload->calls[i];
        call->steps = room(reader, &call->count, sizeof *call->steps);
        for (uint64_t j = 0; !reader->broken && j < call->count; j++)
            read_step(reader, program, workload, &call->steps[j]);
    }
}

static void read_program(struct reader *reader, struct program *program) {
    uint64_t size;
    if (take(reader) != PROGRAM_MAGIC || take(reader) != PROGRAM_VERSION)
        reader->broken = 1;
    program->cubins = room(reader, &program->cubin_count, sizeof *program->cubins);
    for (uint64_t i = 0; !reader->broken && i < program->cubin_count; i++)
        program->cubins[i] = bytes(reader, &size);
    program->kernels = room(reader, &program->kernel_count, sizeof *program->kernels);
    for (uint64_t i = 0; !reader->broken && i < program->kernel_count; i++) {
        program->kernels[i].cubin = take(reader);
        program->kernels[i].name = text(reader);
        if (program->kernels[i].cubin >= program->cubin_count)
            reader->broken = 1;
    }
    program->workloads = room(reader, &program->workload_count, sizeof *program->workloads);
    for (uint64_t i = 0; !reader->broken && i < program->workload_count; i++)
        read_workload(reader, program, &program->workloads[i]);
}

int program_open(struct program *program, int descriptor) {
    struct stat status;
    if (fstat(descriptor, &status) != 0 || status.st_size <= 0 || status.st_size % 8 != 0)
        return -1;
    size_t size = (size_t)status.st_size;
    void *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, descriptor, 0);
    if (data == MAP_FAILED)
        return -1;
    struct reader reader = {data, (uint64_t *)data + size / 8, 0};
    read_program(&reader, program);
    return reader.broken || reader.at != reader.end ? -1 : 0;
}
