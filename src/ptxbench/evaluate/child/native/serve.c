/* Carries out the judge's orders in their sequence; from LOAD on, code of the candidate runs in this process, unless its
 * calls are replayed: then only its kernels do. */
#include "serve.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void map(struct candidate *self, const struct wire_map *order, int descriptor, struct wire_done *done) {
    CUresult code = device_import(&self->device, descriptor, order->size);
    if (code != CUDA_SUCCESS)
        fail_cuda(self, code, done);
}

/* The last step before candidate code: nothing but the orders below is left to do. */
static void ready(struct candidate *self) {
    channel_progress(&self->channel, PHASE_MEMORY, 0);
    sandbox_filter(&self->policy, &self->protections);
    report_protections(self);
    channel_progress(&self->channel, PHASE_READY, 0);
}

static void fail_program(const char *why, struct wire_done *done) {
    done->status = STATUS_PROTOCOL;
    snprintf(done->text, sizeof done->text, "%s", why);
}

static void load_program(struct candidate *self, struct wire_done *done) {
    const char *why = NULL;
    CUresult code = replay_load(&self->replay, &self->device, self->image, &why);
    if (why != NULL)
        fail_program(why, done);
    else if (code != CUDA_SUCCESS)
        fail_cuda(self, code, done);
}

static void load_library(struct candidate *self, struct wire_done *done) {
    char path[64], symbol[WIRE_SYMBOL + 16];
    snprintf(path, sizeof path, "/proc/self/fd/%d", self->image);
    snprintf(symbol, sizeof symbol, "__tvm_ffi_%s", self->setup.symbol);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        done->status = STATUS_LOAD_FAILED;
        snprintf(done->text, sizeof done->text, "%s", dlerror());
        return;
    }
    *(void **)&self->function = dlsym(library, symbol);
    if (self->function == NULL) {
        done->status = STATUS_NO_SYMBOL;
        snprintf(done->text, sizeof done->text, "%s", symbol);
    }
}

static void load(struct candidate *self, struct wire_done *done) {
    channel_progress(&self->channel, PHASE_LOADING, 0);
    if (self->setup.flags & SETUP_REPLAY)
        load_program(self, done);
    else
        load_library(self, done);
    self->loaded = done->status == STATUS_OK;
    if (self->loaded)
        channel_progress(&self->channel, PHASE_LOADED, 0);
}

/* Names and modules first, so that the judge can read the entries when they come. */
static void report_spans(struct candidate *self, struct wire_spans *spans) {
    struct instrument *instrument = &self->instrument;
    for (; instrument->names_sent < spans->result.names; instrument->names_sent++) {
        struct wire_name name = {.index = instrument->names_sent};
        snprintf(name.text, sizeof name.text, "%s", instrument->name(name.index));
        name.length = (uint32_t)strlen(name.text);
        channel_send(&self->channel, WIRE_NAME, &name, sizeof name);
    }
    for (; instrument->modules_sent < spans->result.modules; instrument->modules_sent++) {
        struct span_module module = {0};
        if (instrument->module(instrument->modules_sent, &module) != 0)
            break;
        struct wire_module message = {.bytes = module.bytes};
        memcpy(message.sha256, module.sha256, sizeof message.sha256);
        channel_send(&self->channel, WIRE_MODULE, &message, sizeof message);
    }
    channel_send(&self->channel, WIRE_SPANS, spans, sizeof *spans);
}

static void fail_instrument(const struct candidate *self, int code, struct wire_done *done) {
    done->status = STATUS_INSTRUMENT;
    done->cuda_error = code;
    snprintf(done->cuda_name, sizeof done->cuda_name, "%s", self->instrument.code_name(code));
}

/* The call proper. The judge's own clock runs from its order to RETURNED, which is sent before anything is evaluated. */
static void enter(struct candidate *self, struct wire_done *done) {
    const char *why = NULL;
    int raised = 0;
    CUresult called = CUDA_SUCCESS;
    channel_progress(&self->channel, PHASE_CALLING, 0);
    uint64_t start = now_ns();
    if (self->function == NULL)
        called = replay_call(&self->replay, &self->device, &self->tensors, &why);
    else
        raised = ffi_call(&self->ffi, self->function, &self->tensors, done->text, sizeof done->text);
    CUresult code = self->device.cuda.synchronize();
    done->host_ns = now_ns() - start;
    channel_progress(&self->channel, PHASE_RETURNED, done->host_ns);
    if (why != NULL)
        fail_program(why, done);
    else if (code != CUDA_SUCCESS || called != CUDA_SUCCESS)
        fail_cuda(self, code != CUDA_SUCCESS ? code : called, done);
    else if (raised != 0)
        done->status = STATUS_RAISED;
}

static void measured(struct candidate *self, struct wire_done *done) {
    struct wire_spans spans;
    int code = self->instrument.wanted ? self->instrument.begin() : 0;
    if (code != 0) {
        fail_instrument(self, code, done);
        return;
    }
    enter(self, done);
    if (!self->instrument.wanted || done->status == STATUS_CUDA || done->status == STATUS_PROTOCOL)
        return;
    code = self->instrument.end(&spans.result);
    if (code != 0)
        fail_instrument(self, code, done);
    else
        report_spans(self, &spans);
}

static void call(struct candidate *self, const struct wire_call *order, struct wire_done *done) {
    int staged = (self->setup.flags & SETUP_STAGED) != 0;
    CUresult code = CUDA_SUCCESS;
    if (!self->loaded || tensors_build(&self->tensors, &self->device, order) != 0) {
        done->status = STATUS_PROTOCOL;
        return;
    }
    self->ffi.set_stream(kDLCUDA, self->device.ordinal, self->device.stream, NULL);
    if (staged)
        code = staging_enter(&self->staging, &self->tensors, &self->device, order);
    if (code == CUDA_SUCCESS)
        measured(self, done);
    if (staged && code == CUDA_SUCCESS && done->status != STATUS_CUDA)
        code = staging_leave(&self->staging, &self->device, order);
    if (code != CUDA_SUCCESS)
        fail_cuda(self, code, done);
}

static void calibrate(struct candidate *self, struct wire_done *done) {
    channel_progress(&self->channel, PHASE_CALLING, 0);
    uint64_t start = now_ns();
    CUresult code = device_trivial_work(&self->device);
    done->host_ns = now_ns() - start;
    channel_progress(&self->channel, PHASE_RETURNED, done->host_ns);
    if (code != CUDA_SUCCESS)
        fail_cuda(self, code, done);
}

static void reset_l2(struct candidate *self, struct wire_done *done) {
    CUresult code = device_reset_l2(&self->device);
    if (code != CUDA_SUCCESS)
        fail_cuda(self, code, done);
}

void serve(struct candidate *self) {
    union wire_orders order;
    int descriptor;
    while (channel_receive(&self->channel, &order, &descriptor) == 0 && order.header.kind != WIRE_QUIT) {
        struct wire_done done = {.status = STATUS_OK};
        switch (order.header.kind) {
        case WIRE_MAP:
            map(self, &order.map, descriptor, &done);
            break;
        case WIRE_READY:
            ready(self);
            break;
        case WIRE_LOAD:
            load(self, &done);
            break;
        case WIRE_CALL:
            call(self, &order.call, &done);
            break;
        case WIRE_CALIBRATE:
            calibrate(self, &done);
            break;
        case WIRE_RESET_L2:
            reset_l2(self, &done);
            break;
        default:
            done.status = STATUS_PROTOCOL;
        }
        channel_done(&self->channel, &done);
    }
}
