/* Replays recorded calls: addresses and tensor maps are put in anew, then the driver is called as the host code did. */
#include "replay.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

struct scene {
    const struct replay *replay;
    const struct device *device;
    const struct tensors *tensors;
    struct stage *stage;
    const char *why;
};

const char *replay_bind(struct replay *replay, void *library) {
#define REPLAY_FIND(field, function, symbol)                                                                           \
    if ((*(void **)&replay->cuda.field = dlsym(library, symbol)) == NULL)                                              \
        return symbol;
    REPLAY_FUNCTIONS(REPLAY_FIND)
    return NULL;
}

/* ---- loading ---- */

static CUresult make_handles(const struct replay *replay, const struct device *device, struct stage *stage) {
    const struct workload *workload = stage->workload;
    CUresult code = CUDA_SUCCESS;
    stage->streams[1] = CU_STREAM_LEGACY;
    stage->streams[2] = CU_STREAM_PER_THREAD;
    stage->streams[3] = device->stream;
    for (uint64_t i = 0; code == CUDA_SUCCESS && i < workload->streams.count; i++)
        code = device->cuda.stream_create(&stage->streams[PROGRAM_STREAMS + i], (unsigned)workload->streams.words[i]);
    for (uint64_t i = 0; code == CUDA_SUCCESS && i < workload->events.count; i++)
        code = replay->cuda.event_create(&stage->events[i], (unsigned)workload->events.words[i]);
    return code;
}

/* Each workload gets the modules for itself: its variables begin as in a fresh process, as they did when recorded. */
static CUresult load_stage(const struct replay *replay, const struct device *device, struct stage *stage) {
    const struct program *program = &replay->program;
    CUresult code = CUDA_SUCCESS;
    for (uint64_t i = 0; code == CUDA_SUCCESS && i < program->cubin_count; i++)
        code = replay->cuda.module_load(&stage->modules[i], program->cubins[i]);
    for (uint64_t i = 0; code == CUDA_SUCCESS && i < program->kernel_count; i++) {
        const struct kernel *kernel = &program->kernels[i];
        code = replay->cuda.get_function(&stage->functions[i], stage->modules[kernel->cubin], kernel->name);
    }
    return code == CUDA_SUCCESS ? make_handles(replay, device, stage) : code;
}

static int make_room(const struct program *program, const struct workload *workload, struct stage *stage) {
    stage->workload = workload;
    stage->modules = calloc(program->cubin_count + 1, sizeof *stage->modules);
    stage->functions = calloc(program->kernel_count + 1, sizeof *stage->functions);
    stage->allocations = calloc(workload->allocation_count + 1, sizeof *stage->allocations);
    stage->streams = calloc(PROGRAM_STREAMS + workload->streams.count, sizeof *stage->streams);
    stage->events = calloc(workload->events.count + 1, sizeof *stage->events);
    return stage->modules && stage->functions && stage->allocations && stage->streams && stage->events ? 0 : -1;
}

CUresult replay_load(struct replay *replay, const struct device *device, int descriptor, const char **why) {
    CUresult code = CUDA_SUCCESS;
    if (program_open(&replay->program, descriptor) != 0) {
        *why = "the replay program is malformed";
        return code;
    }
    replay->stages = calloc(replay->program.workload_count + 1, sizeof *replay->stages);
    if (replay->stages == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (uint64_t i = 0; code == CUDA_SUCCESS && i < replay->program.workload_count; i++) {
        if (make_room(&replay->program, &replay->program.workloads[i], &replay->stages[i]) != 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
        code = load_stage(replay, device, &replay->stages[i]);
    }
    return code;
}

/* ---- one call ---- */

/* The device address of a place, 0 where its allocation is not there (a variable that the machine code lacks). */
static CUdeviceptr address_of(struct scene *scene, const struct place *place) {
    CUdeviceptr base = place->kind == PLACE_ARGUMENT ? (CUdeviceptr)scene->tensors->views[place->index].data
                                                     : scene->stage->allocations[place->index];
    if (base == 0)
        scene->why = "the record uses memory that was never allocated";
    return base == 0 ? 0 : base + place->addend;
}

static CUresult encode(struct scene *scene, const struct map *map, unsigned char *bytes) {
    const uint64_t *w = map->words;
    CUtensorMap made;
    void *address = (void *)address_of(scene, &map->place);
    cuuint64_t sizes[5], strides[5];
    cuuint32_t box[5], steps[5];
    int lower[3], upper[3];
    for (int i = 0; i < 5; i++) {
        sizes[i] = w[10 + i];
        strides[i] = w[15 + i];
        box[i] = (cuuint32_t)w[20 + i];
        steps[i] = (cuuint32_t)w[25 + i];
    }
    for (int i = 0; i < 3; i++) {
        lower[i] = (int)(int64_t)w[30 + i];
        upper[i] = (int)(int64_t)w[35 + i];
    }
    if (scene->why != NULL || w[2] < 1 || w[2] > 5)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult code =
        w[0] == 0 ? scene->replay->cuda.encode_tiled(&made, (CUtensorMapDataType)w[1], (cuuint32_t)w[2], address, sizes,
                                                     strides, box, steps, (CUtensorMapInterleave)w[4],
                                                     (CUtensorMapSwizzle)w[5], (CUtensorMapL2promotion)w[6],
                                                     (CUtensorMapFloatOOBfill)w[7])
                  : scene->replay->cuda.encode_im2col(&made, (CUtensorMapDataType)w[1], (cuuint32_t)w[2], address, sizes,
                                                      strides, lower, upper, (cuuint32_t)w[8], (cuuint32_t)w[9], steps,
                                                      (CUtensorMapInterleave)w[4], (CUtensorMapSwizzle)w[5],
                                                      (CUtensorMapL2promotion)w[6], (CUtensorMapFloatOOBfill)w[7]);
    memcpy(bytes, &made, sizeof made);
    return code;
}

static CUresult place_all(struct scene *scene, const struct step *step) {
    CUresult code = CUDA_SUCCESS;
    for (uint64_t i = 0; code == CUDA_SUCCESS && i < step->piece_count; i++) {
        const struct piece *piece = &step->pieces[i];
        for (uint64_t j = 0; j < piece->patch_count; j++) {
            CUdeviceptr address = address_of(scene, &piece->patches[j].place);
            memcpy(piece->bytes + piece->patches[j].offset, &address, sizeof address);
        }
        for (uint64_t j = 0; code == CUDA_SUCCESS && j < piece->map_count; j++)
            code = encode(scene, &piece->maps[j], piece->bytes + piece->maps[j].offset);
    }
    return code;
}

static CUresult launch(struct scene *scene, const struct step *step) {
    const uint64_t *w = step->words;
    CUlaunchAttribute attributes[3];
    CUlaunchConfig config = {
        .gridDimX = (unsigned)w[1],
        .gridDimY = (unsigned)w[2],
        .gridDimZ = (unsigned)w[3],
        .blockDimX = (unsigned)w[4],
        .blockDimY = (unsigned)w[5],
        .blockDimZ = (unsigned)w[6],
        .sharedMemBytes = (unsigned)w[10],
        .hStream = scene->stage->streams[w[11]],
        .attrs = attributes,
    };
    if (w[7] * w[8] * w[9] != 1) {
        CUlaunchAttribute *attribute = &attributes[config.numAttrs++];
        attribute->id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        attribute->value.clusterDim.x = (unsigned)w[7];
        attribute->value.clusterDim.y = (unsigned)w[8];
        attribute->value.clusterDim.z = (unsigned)w[9];
    }
    if (w[12] & LAUNCH_COOPERATIVE) {
        attributes[config.numAttrs].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        attributes[config.numAttrs++].value.cooperative = 1;
    }
    if (w[12] & LAUNCH_PROGRAMMATIC) {
        attributes[config.numAttrs].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attributes[config.numAttrs++].value.programmaticStreamSerializationAllowed = 1;
    }
    return scene->replay->cuda.launch(&config, scene->stage->functions[w[0]], step->parameters, NULL);
}

static CUresult copy_in(struct scene *scene, const struct step *step) {
    const uint64_t *w = step->words;
    CUdeviceptr to = address_of(scene, (const struct place *)w);
    CUstream stream = scene->stage->streams[w[6]];
    if (to == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (w[5] == 1)
        return scene->replay->cuda.copy_in(to, step->pieces[0].bytes, w[4], stream);
    CUDA_MEMCPY2D copy = {
        .srcMemoryType = CU_MEMORYTYPE_HOST,
        .srcHost = step->pieces[0].bytes,
        .srcPitch = w[4],
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = to,
        .dstPitch = w[3],
        .WidthInBytes = w[4],
        .Height = w[5],
    };
    return scene->replay->cuda.copy(&copy, stream);
}

static CUresult copy(struct scene *scene, const struct step *step) {
    const uint64_t *w = step->words;
    CUdeviceptr to = address_of(scene, (const struct place *)w), from = address_of(scene, (const struct place *)(w + 4));
    CUstream stream = scene->stage->streams[w[10]];
    if (to == 0 || from == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (w[9] == 1)
        return scene->replay->cuda.copy_row(to, from, w[8], stream);
    CUDA_MEMCPY2D rows = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = from,
        .srcPitch = w[7],
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = to,
        .dstPitch = w[3],
        .WidthInBytes = w[8],
        .Height = w[9],
    };
    return scene->replay->cuda.copy(&rows, stream);
}

static CUresult fill(struct scene *scene, const struct step *step) {
    const uint64_t *w = step->words;
    CUdeviceptr to = address_of(scene, (const struct place *)w);
    uint64_t value = w[3], element = w[4], width = w[5], height = w[6], pitch = w[7];
    CUstream stream = scene->stage->streams[w[8]];
    if (to == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (height == 1 && element == 1)
        return scene->replay->cuda.fill_row8(to, (unsigned char)value, width, stream);
    if (height == 1 && element == 2)
        return scene->replay->cuda.fill_row16(to, (unsigned short)value, width, stream);
    if (height == 1)
        return scene->device->cuda.set_words(to, (unsigned)value, width, stream);
    if (element == 1)
        return scene->replay->cuda.fill8(to, pitch, (unsigned char)value, width, height, stream);
    if (element == 2)
        return scene->replay->cuda.fill16(to, pitch, (unsigned short)value, width, height, stream);
    return scene->replay->cuda.fill32(to, pitch, (unsigned)value, width, height, stream);
}

/* A variable that the machine code does not have stays at 0: host code may know of variables that no kernel uses. */
static CUresult find_symbol(struct scene *scene, const struct step *step) {
    CUdeviceptr *slot = &scene->stage->allocations[step->words[0]];
    CUresult code = CUDA_ERROR_NOT_FOUND;
    for (uint64_t i = 0; code == CUDA_ERROR_NOT_FOUND && i < scene->replay->program.cubin_count; i++)
        code = scene->replay->cuda.get_global(slot, NULL, scene->stage->modules[i], (char *)step->pieces[0].bytes);
    return code == CUDA_ERROR_NOT_FOUND ? CUDA_SUCCESS : code;
}

static CUresult allocate(struct scene *scene, const struct step *step) {
    CUdeviceptr *slot = &scene->stage->allocations[step->words[0]];
    if (step->words[2] == PROGRAM_NONE)
        return scene->device->cuda.alloc(slot, step->words[1]);
    return scene->replay->cuda.alloc_async(slot, step->words[1], scene->stage->streams[step->words[2]]);
}

static CUresult release(struct scene *scene, const struct step *step) {
    CUdeviceptr address = address_of(scene, (const struct place *)step->words);
    if (address == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (step->words[3] == PROGRAM_NONE)
        return scene->device->cuda.free(address);
    return scene->replay->cuda.free_async(address, scene->stage->streams[step->words[3]]);
}

static CUresult attribute(struct scene *scene, const struct step *step) {
    return scene->replay->cuda.set_attribute(scene->stage->functions[step->words[0]],
                                             (CUfunction_attribute)step->words[1], (int)(int64_t)step->words[2]);
}

/* Both kinds of values that a pool's attributes have begin with the low bytes. */
static CUresult set_pool(struct scene *scene, const struct step *step) {
    CUmemoryPool pool;
    uint64_t value = step->words[1];
    CUresult code = scene->replay->cuda.default_pool(&pool, scene->device->ordinal);
    return code == CUDA_SUCCESS ? scene->replay->cuda.set_pool(pool, (CUmemPool_attribute)step->words[0], &value) : code;
}

static CUresult order(struct scene *scene, const struct step *step) {
    const uint64_t *w = step->words;
    switch (step->code) {
    case STEP_RECORD:
        return scene->replay->cuda.event_record(scene->stage->events[w[0]], scene->stage->streams[w[1]]);
    case STEP_WAIT:
        return scene->replay->cuda.stream_wait(scene->stage->streams[w[1]], scene->stage->events[w[0]], 0);
    case STEP_WAIT_STREAM:
        return scene->replay->cuda.stream_synchronize(scene->stage->streams[w[0]]);
    case STEP_WAIT_EVENT:
        return scene->replay->cuda.event_wait(scene->stage->events[w[0]]);
    default:
        return scene->device->cuda.synchronize();
    }
}

static CUresult carry_out(struct scene *scene, const struct step *step) {
    static CUresult (*const actions[STEP_CODES])(struct scene *, const struct step *) = {
        [STEP_LAUNCH] = launch,     [STEP_COPY_IN] = copy_in,       [STEP_COPY] = copy,
        [STEP_FILL] = fill,         [STEP_ALLOCATE] = allocate,     [STEP_SYMBOL] = find_symbol,
        [STEP_FREE] = release,      [STEP_ATTRIBUTE] = attribute,   [STEP_RECORD] = order,
        [STEP_WAIT] = order,        [STEP_WAIT_STREAM] = order,     [STEP_WAIT_EVENT] = order,
        [STEP_WAIT_ALL] = order,    [STEP_POOL] = set_pool,
    };
    CUresult code = place_all(scene, step);
    if (code == CUDA_SUCCESS && scene->why == NULL)
        code = actions[step->code](scene, step);
    return code;
}

static int has_shapes(const struct workload *workload, const struct tensors *tensors) {
    if (workload->argument_count != tensors->count)
        return 0;
    for (uint64_t i = 0; i < tensors->count; i++) {
        const struct shape *shape = &workload->arguments[i];
        const DLTensor *view = &tensors->views[i];
        if (shape->code != view->dtype.code || shape->bits != view->dtype.bits ||
            shape->sizes.count != (uint64_t)view->ndim ||
            memcmp(shape->sizes.words, view->shape, 8 * shape->sizes.count) != 0)
            return 0;
    }
    return 1;
}

CUresult replay_call(struct replay *replay, const struct device *device, const struct tensors *tensors,
                     const char **why) {
    struct scene scene = {.replay = replay, .device = device, .tensors = tensors};
    for (uint64_t i = 0; scene.stage == NULL && i < replay->program.workload_count; i++)
        if (has_shapes(&replay->program.workloads[i], tensors))
            scene.stage = &replay->stages[i];
    if (scene.stage == NULL || scene.stage->calls_made == scene.stage->workload->call_count) {
        *why = scene.stage == NULL ? "no call with these shapes was recorded" : "no further call was recorded";
        return CUDA_SUCCESS;
    }
    const struct calls *call = &scene.stage->workload->calls[scene.stage->calls_made++];
    CUresult code = CUDA_SUCCESS;
    for (uint64_t i = 0; code == CUDA_SUCCESS && scene.why == NULL && i < call->count; i++)
        code = carry_out(&scene, &call->steps[i]);
    *why = scene.why;
    return scene.why == NULL ? code : CUDA_SUCCESS;
}
