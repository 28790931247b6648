/* A CUPTI for tests on machines without a GPU: it records what it is told to. Behaviour of each call as cupti.h says. */
#define _GNU_SOURCE
#include <cupti.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_RECORDS 4096

/* Told by tests. */
int fake_subscribe_answer;
int fake_flush_answer;
size_t fake_dropped;

static CUpti_ActivityKernel10 records[MAX_RECORDS];
static size_t record_count;
static CUpti_BuffersCallbackRequestFunc give_buffer;
static CUpti_BuffersCallbackCompleteFunc take_buffer;
static CUpti_CallbackFunc on_callback;

CUptiResult cuptiGetTimestamp(uint64_t *timestamp) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    *timestamp = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return CUPTI_SUCCESS;
}

/* A kernel that starts and ends so many nanoseconds from now; `absolute` takes both as they are. */
void fake_kernel(const char *name, int64_t start, int64_t end, int absolute) {
    uint64_t now = 0;
    if (!absolute)
        cuptiGetTimestamp(&now);
    CUpti_ActivityKernel10 *record = &records[record_count++ % MAX_RECORDS];
    memset(record, 0, sizeof *record);
    record->kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    record->start = now + (uint64_t)start;
    record->end = now + (uint64_t)end;
    record->name = name;
    record->streamId = 7;
}

void fake_module(const char *bytes, size_t size) {
    CUpti_ModuleResourceData module = {.cubinSize = size, .pCubin = bytes};
    CUpti_ResourceData resource = {.resourceDescriptor = &module};
    if (on_callback != NULL)
        on_callback(NULL, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_MODULE_LOADED, &resource);
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc give,
                                           CUpti_BuffersCallbackCompleteFunc take) {
    give_buffer = give;
    take_buffer = take;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
    return kind == CUPTI_ACTIVITY_KIND_KERNEL ? CUPTI_ERROR_NOT_COMPATIBLE : CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(uint32_t flag) {
    uint8_t *buffer;
    size_t size, most;
    (void)flag;
    if (fake_flush_answer != 0 || record_count == 0)
        return (CUptiResult)fake_flush_answer;
    give_buffer(&buffer, &size, &most);
    size_t used = record_count * sizeof records[0];
    memcpy(buffer, records, used);
    record_count = 0;
    take_buffer(NULL, 0, buffer, size, used);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record) {
    uint8_t *next = *record == NULL ? buffer : (uint8_t *)*record + sizeof records[0];
    if (next >= buffer + valid)
        return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (CUpti_Activity *)next;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *dropped) {
    (void)context, (void)stream;
    *dropped = fake_dropped;
    fake_dropped = 0;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *user) {
    (void)subscriber, (void)user;
    on_callback = callback;
    return (CUptiResult)fake_subscribe_answer;
}

CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                                CUpti_CallbackId id) {
    (void)subscriber;
    return enable && domain == CUPTI_CB_DOMAIN_RESOURCE && id == CUPTI_CBID_RESOURCE_MODULE_LOADED
               ? CUPTI_SUCCESS
               : CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char **text) {
    *text = result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
            : result == CUPTI_ERROR_UNKNOWN                          ? "CUPTI_ERROR_UNKNOWN"
                                                                     : "CUPTI_SUCCESS";
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetVersion(uint32_t *version) {
    *version = 130001;
    return CUPTI_SUCCESS;
}
