/* The process in which a candidate runs: connects to the judge, puts itself into the sandbox, serves orders.
 *
 *     candidate SOCKET [tool]      `tool`: started by a profiler or sanitizer, whose descriptors must stay open
 *     candidate --probe-sandbox    which protections this machine allows, as JSON
 *     candidate --print-layout     the wire's structs, as JSON */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "layout.h"
#include "serve.h"

static struct candidate self;

static int probe_sandbox(void) {
    struct sandbox_policy policy = {.hidden = {"/root", "/home", "/var/tmp"}};
    sandbox_enter(&policy, &self.protections);
    sandbox_seal(&policy, &self.protections);
    sandbox_filter(&policy, &self.protections);
    printf("[");
    for (size_t i = 0; i < self.protections.count; i++) {
        const struct protection *protection = &self.protections.list[i];
        printf("%s{\"name\": \"%s\", \"active\": %s, \"errno\": %d, \"reason\": \"%s\"}", i == 0 ? "" : ",\n ",
               protection->name, protection->active ? "true" : "false", protection->error, protection->reason);
    }
    printf("]\n");
    fflush(stdout);
    _exit(0);
}

/* Under a tool standard output is the tool's report; nothing that a candidate prints may stand between its lines. */
static void print_nowhere(void) {
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0) {
        dup2(nowhere, STDOUT_FILENO);
        dup2(nowhere, STDERR_FILENO);
        close(nowhere);
    }
}

/* Folders of the trusted libraries, and of the tool: they may load more of their own later. */
static void keep_library_folders(struct candidate *candidate) {
    char *const paths[] = {candidate->setup.cuda, candidate->setup.cudart, candidate->setup.tvm_ffi,
                           candidate->setup.cupti};
    size_t count = 0;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        char *slash = strrchr(paths[i], '/');
        if (slash == NULL || slash == paths[i])
            continue;
        char *folder = strndup(paths[i], (size_t)(slash - paths[i]));
        if (folder != NULL)
            candidate->policy.needed[count++] = folder;
    }
    for (size_t i = 0; i < WIRE_NEEDED; i++)
        if (candidate->setup.needed[i][0] == '/')
            candidate->policy.needed[count++] = candidate->setup.needed[i];
}

static void read_policy(struct candidate *candidate) {
    candidate->policy.under_tool = (candidate->setup.flags & SETUP_UNDER_TOOL) != 0;
    candidate->policy.keep_root = (candidate->setup.flags & SETUP_KEEP_ROOT) != 0;
    for (uint32_t i = 0; i < candidate->setup.hidden_count && i < WIRE_HIDDEN; i++)
        candidate->policy.hidden[i] = candidate->setup.hidden[i];
    keep_library_folders(candidate);
}

static int receive_setup(struct candidate *candidate) {
    union wire_orders order;
    int descriptor = -1;
    if (channel_receive(&candidate->channel, &order, &descriptor) != 0 || order.header.kind != WIRE_SETUP)
        return -1;
    candidate->setup = order.setup;
    candidate->image = keep_image(descriptor);
    return candidate->image < 0 ? -1 : 0;
}

/* Returns 0, or -1 with the reason in `done`. */
static int prepare(struct candidate *candidate, struct wire_done *done) {
    sandbox_enter(&candidate->policy, &candidate->protections);
    if (load_trusted(candidate, done) != 0)
        return -1;
    sandbox_seal(&candidate->policy, &candidate->protections);
    report_protections(candidate);
    channel_progress(&candidate->channel, PHASE_SANDBOXED, 0);
    if (open_instrument(candidate, done) != 0)
        return -1;
    CUresult code = device_open(&candidate->device, candidate->setup.device);
    if (code != CUDA_SUCCESS) {
        fail_cuda(candidate, code, done);
        return -1;
    }
    channel_progress(&candidate->channel, PHASE_CONTEXT, 0);
    return 0;
}

int main(int count, char **arguments) {
    if (count == 2 && strcmp(arguments[1], "--probe-sandbox") == 0)
        return probe_sandbox();
    if (count == 2 && strcmp(arguments[1], "--print-layout") == 0) {
        print_layout();
        return 0;
    }
    int under_tool = count == 3 && strcmp(arguments[2], "tool") == 0;
    if (count != 2 && !under_tool) {
        fprintf(stderr, "usage: candidate SOCKET [tool] | --probe-sandbox | --print-layout\n");
        return 2;
    }
    if (under_tool)
        protection_leave_out(&self.protections, "closed_descriptors", "the tool's own must stay open");
    else
        protection_add(&self.protections, "closed_descriptors", close_range(3, ~0u, 0) == 0 ? 0 : errno);
    if (channel_connect(&self.channel, arguments[1]) != 0) {
        perror("the judge's socket");
        return 3;
    }
    channel_progress(&self.channel, PHASE_CONNECTED, 0);
    if (under_tool)
        print_nowhere();
    if (receive_setup(&self) != 0)
        return 4;
    read_policy(&self);
    struct wire_done done = {.status = STATUS_OK};
    int prepared = prepare(&self, &done);
    channel_done(&self.channel, &done);
    if (prepared != 0)
        return 5;
    serve(&self);
    /* Not exit(): no destructor of the candidate gets a turn; but a tool writes its report at exit. */
    if (self.policy.under_tool)
        exit(0);
    _exit(0);
}
