/* The activity instrument on CUPTI's activity API; the library libptxspans.so. No timing policy: callers decide. */
#define _GNU_SOURCE
#include "spans.h"

#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sha256.h"

#define BUFFER_BYTES (64u << 10)
#define SPARE_BUFFERS 8
#define MARGIN_NS 5000000u /* CUPTI's clock and the device's agree to far better than 5 ms */
#define MAX_NAMES 512
#define MAX_MODULES 512

/* The newest record of each kind in this header; CUPTI of the same major version only ever appends fields. */
typedef CUpti_ActivityKernel10 kernel_record;
typedef CUpti_ActivityMemcpy6 copy_record;
typedef CUpti_ActivityMemset4 set_record;

#define CUPTI_FUNCTIONS(X)                                                                                             \
    X(cuptiActivityRegisterCallbacks)                                                                                  \
    X(cuptiActivityEnable)                                                                                             \
    X(cuptiActivityFlushAll)                                                                                           \
    X(cuptiActivityGetNextRecord)                                                                                      \
    X(cuptiActivityGetNumDroppedRecords)                                                                               \
    X(cuptiSubscribe)                                                                                                  \
    X(cuptiEnableCallback)                                                                                             \
    X(cuptiGetTimestamp)                                                                                               \
    X(cuptiGetResultString)                                                                                            \
    X(cuptiGetVersion)

#define DECLARE(name) __typeof__(name) *name;
static struct {
    CUPTI_FUNCTIONS(DECLARE)
} api;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct span_result window;
static int window_open;
static int opened;
static char *names[MAX_NAMES];
static uint32_t name_count;
static struct span_module modules[MAX_MODULES];
static uint32_t module_count;

static uint32_t intern(const char *name) {
    if (name == NULL || strlen(name) >= SPAN_NAME)
        return SPAN_NO_NAME;
    for (uint32_t i = 0; i < name_count; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    if (name_count == MAX_NAMES || (names[name_count] = strdup(name)) == NULL)
        return SPAN_NO_NAME;
    return name_count++;
}

static void record(struct span_entry entry) {
    if (!window_open) {
        window.strays++;
        return;
    }
    if (entry.start == 0 || entry.end == 0 || entry.end < entry.start ||
        entry.start + MARGIN_NS < window.window_begin) {
        window.absurd++;
        return;
    }
    if (entry.kind == SPAN_KERNEL && entry.name == SPAN_NO_NAME)
        window.nameless++;
    if (window.records == 0 || entry.start < window.first_start)
        window.first_start = entry.start;
    if (entry.end > window.last_end)
        window.last_end = entry.end;
    if (window.listed < SPAN_ENTRIES)
        window.entries[window.listed++] = entry;
    window.records++;
}

static void take(const CUpti_Activity *activity) {
    if (activity->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || activity->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
        const kernel_record *k = (const kernel_record *)activity;
        record((struct span_entry){k->start, k->end, SPAN_KERNEL, intern(k->name), k->streamId, k->graphId});
    } else if (activity->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const copy_record *c = (const copy_record *)activity;
        record((struct span_entry){c->start, c->end, SPAN_COPY, SPAN_NO_NAME, c->streamId, c->graphId});
    } else if (activity->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        const set_record *s = (const set_record *)activity;
        record((struct span_entry){s->start, s->end, SPAN_SET, SPAN_NO_NAME, s->streamId, s->graphId});
    }
}

/* Buffers go round: a fresh one costs CUPTI a page fault per page inside the very call that is measured (2 ms for 4 MiB
 * on an H200's host, against 0.7 ms of kernel). */
static uint8_t *spare[SPARE_BUFFERS];
static uint32_t spares;

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *max_records) {
    pthread_mutex_lock(&lock);
    *buffer = spares > 0 ? spare[--spares] : aligned_alloc(4096, BUFFER_BYTES);
    pthread_mutex_unlock(&lock);
    *size = *buffer == NULL ? 0 : BUFFER_BYTES;
    *max_records = 0;
}

static void take_back(uint8_t *buffer) {
    if (spares < SPARE_BUFFERS)
        spare[spares++] = buffer;
    else
        free(buffer);
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)context, (void)stream, (void)size;
    CUpti_Activity *activity = NULL;
    size_t dropped = 0;
    pthread_mutex_lock(&lock);
    while (valid > 0 && api.cuptiActivityGetNextRecord(buffer, valid, &activity) == CUPTI_SUCCESS)
        take(activity);
    if (api.cuptiActivityGetNumDroppedRecords(NULL, 0, &dropped) == CUPTI_SUCCESS)
        window.dropped += (uint32_t)dropped;
    take_back(buffer);
    pthread_mutex_unlock(&lock);
}

static void CUPTIAPI on_module(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data) {
    (void)user;
    if (domain != CUPTI_CB_DOMAIN_RESOURCE || id != CUPTI_CBID_RESOURCE_MODULE_LOADED)
        return;
    const CUpti_ModuleResourceData *loaded = ((const CUpti_ResourceData *)data)->resourceDescriptor;
    pthread_mutex_lock(&lock);
    if (module_count < MAX_MODULES) {
        modules[module_count].bytes = loaded->cubinSize;
        sha256(loaded->pCubin, loaded->cubinSize, modules[module_count].sha256);
    }
    module_count++; /* past MAX_MODULES too: the reader sees that some are missing */
    pthread_mutex_unlock(&lock);
}

static int fail(struct span_failure *failure, int code, const char *text) {
    failure->code = code;
    snprintf(failure->name, sizeof failure->name, "%s", spans_code_name(code));
    snprintf(failure->text, sizeof failure->text, "%s", text);
    return -1;
}

static int load(const char *path, struct span_failure *failure) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return fail(failure, -1, dlerror());
#define FIND(name)                                                                                                     \
    if ((*(void **)&api.name = dlsym(library, #name)) == NULL)                                                         \
        return fail(failure, -1, #name " is missing from CUPTI");
    CUPTI_FUNCTIONS(FIND)
    return 0;
}

/* Also where no callback is wanted: it is how a second user of CUPTI in this process is found out. */
static int subscribe(int hash_modules, struct span_failure *failure) {
    CUpti_SubscriberHandle subscriber;
    CUptiResult code = api.cuptiSubscribe(&subscriber, on_module, NULL);
    if (code != CUPTI_SUCCESS)
        return fail(failure, code, "cuptiSubscribe");
    if (hash_modules)
        code = api.cuptiEnableCallback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_MODULE_LOADED);
    return code == CUPTI_SUCCESS ? 0 : fail(failure, code, "cuptiEnableCallback");
}

int spans_open(const char *cupti, int hash_modules, struct span_failure *failure) {
    static const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                               CUPTI_ACTIVITY_KIND_MEMSET};
    if (opened)
        return fail(failure, -1, "the instrument is open already");
    if (load(cupti, failure) != 0 || subscribe(hash_modules, failure) != 0)
        return -1;
    CUptiResult code = api.cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
    for (size_t i = 0; code == CUPTI_SUCCESS && i < sizeof kinds / sizeof kinds[0]; i++)
        code = api.cuptiActivityEnable(kinds[i]);
    if (code != CUPTI_SUCCESS)
        return fail(failure, code, "the activity interface");
    opened = 1;
    return 0;
}

int spans_begin(void) {
    pthread_mutex_lock(&lock);
    memset(&window, 0, offsetof(struct span_result, entries));
    pthread_mutex_unlock(&lock);
    /* Whatever is delivered here ran after the last window had closed. */
    CUptiResult code = api.cuptiActivityFlushAll(0);
    uint64_t now = 0;
    if (code == CUPTI_SUCCESS)
        code = api.cuptiGetTimestamp(&now);
    pthread_mutex_lock(&lock);
    window.window_begin = now;
    window_open = 1;
    pthread_mutex_unlock(&lock);
    return code;
}

static int too_late(const struct span_entry *entry) { return entry->end > window.window_end + MARGIN_NS; }

int spans_end(struct span_result *result) {
    uint64_t now = 0;
    CUptiResult code = api.cuptiGetTimestamp(&now);
    if (code == CUPTI_SUCCESS)
        code = api.cuptiActivityFlushAll(0);
    pthread_mutex_lock(&lock);
    window_open = 0;
    window.window_end = now;
    for (uint32_t i = 0; i < window.listed; i++)
        window.absurd += (uint32_t)too_late(&window.entries[i]);
    window.names = name_count;
    window.modules = module_count;
    *result = window;
    pthread_mutex_unlock(&lock);
    return code;
}

const char *spans_name(uint32_t index) { return index < name_count ? names[index] : NULL; }

int spans_module(uint32_t index, struct span_module *module) {
    if (index >= module_count || index >= MAX_MODULES)
        return -1;
    *module = modules[index];
    return 0;
}

const char *spans_code_name(int code) {
    const char *name = NULL;
    if (code < 0 || api.cuptiGetResultString == NULL || api.cuptiGetResultString(code, &name) != CUPTI_SUCCESS)
        return "";
    return name;
}

uint32_t spans_version(void) {
    uint32_t version = 0;
    return api.cuptiGetVersion != NULL && api.cuptiGetVersion(&version) == CUPTI_SUCCESS ? version : 0;
}
