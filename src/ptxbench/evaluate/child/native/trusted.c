/* Trusted libraries and the candidate's image, before and while the sandbox is put up; candidate code never runs here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "serve.h"

void report_protections(struct candidate *self) {
    for (; self->protections_sent < self->protections.count; self->protections_sent++) {
        const struct protection *protection = &self->protections.list[self->protections_sent];
        struct wire_protection message = {.error = protection->error, .active = (uint32_t)protection->active};
        snprintf(message.name, sizeof message.name, "%s", protection->name);
        snprintf(message.reason, sizeof message.reason, "%s", protection->reason);
        channel_send(&self->channel, WIRE_PROTECTION, &message, sizeof message);
    }
}

static void *open_library(const char *path, int mode, struct wire_done *done) {
    void *library = dlopen(path, RTLD_NOW | mode);
    if (library == NULL) {
        done->status = STATUS_LIBRARY;
        snprintf(done->text, sizeof done->text, "%s", dlerror());
    }
    return library;
}

static int lacks(const char *library, const char *function, struct wire_done *done) {
    if (function == NULL)
        return 0;
    done->status = STATUS_LIBRARY;
    snprintf(done->text, sizeof done->text, "%s has no %s", library, function);
    return -1;
}

static int bind_instrument(struct candidate *self, struct wire_done *done) {
    struct instrument *instrument = &self->instrument;
    void *library = open_library(self->setup.spans, RTLD_LOCAL, done);
    /* CUPTI too: later, as nobody, this process may not be allowed to open it. */
    if (library == NULL || open_library(self->setup.cupti, RTLD_LOCAL, done) == NULL)
        return -1;
    const struct {
        void **slot;
        const char *name;
    } table[] = {
        {(void **)&instrument->open, "spans_open"},     {(void **)&instrument->begin, "spans_begin"},
        {(void **)&instrument->end, "spans_end"},       {(void **)&instrument->name, "spans_name"},
        {(void **)&instrument->module, "spans_module"}, {(void **)&instrument->code_name, "spans_code_name"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if ((*table[i].slot = dlsym(library, table[i].name)) == NULL)
            return lacks(self->setup.spans, table[i].name, done);
    instrument->wanted = 1;
    return 0;
}

int load_trusted(struct candidate *self, struct wire_done *done) {
    void *library = open_library(self->setup.cuda, RTLD_GLOBAL, done);
    if (library == NULL || lacks(self->setup.cuda, device_bind(&self->device, library), done) != 0)
        return -1;
    if ((self->setup.flags & SETUP_REPLAY) && lacks(self->setup.cuda, replay_bind(&self->replay, library), done) != 0)
        return -1;
    if (self->setup.cudart[0] != '\0' && open_library(self->setup.cudart, RTLD_GLOBAL, done) == NULL)
        return -1;
    library = open_library(self->setup.tvm_ffi, RTLD_GLOBAL, done);
    if (library == NULL || lacks(self->setup.tvm_ffi, ffi_bind(&self->ffi, library), done) != 0)
        return -1;
    return self->setup.spans[0] == '\0' ? 0 : bind_instrument(self, done);
}

int open_instrument(struct candidate *self, struct wire_done *done) {
    struct span_failure failure = {0};
    if (!self->instrument.wanted || self->instrument.open(self->setup.cupti, 1, &failure) == 0)
        return 0;
    done->status = STATUS_INSTRUMENT;
    done->cuda_error = failure.code;
    snprintf(done->cuda_name, sizeof done->cuda_name, "%s", failure.name);
    snprintf(done->text, sizeof done->text, "%s", failure.text);
    return -1;
}

int keep_image(int descriptor) {
    struct stat status;
    int image = memfd_create("candidate", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (image < 0 || fstat(descriptor, &status) != 0)
        return -1;
    for (off_t left = status.st_size; left > 0;) {
        ssize_t copied = sendfile(image, descriptor, NULL, (size_t)left);
        if (copied <= 0)
            return -1;
        left -= copied;
    }
    close(descriptor);
    return fcntl(image, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0 ? image : -1;
}

void fail_cuda(const struct candidate *self, CUresult code, struct wire_done *done) {
    done->status = STATUS_CUDA;
    done->cuda_error = (int32_t)code;
    device_error_name(&self->device, code, done->cuda_name, sizeof done->cuda_name);
}
