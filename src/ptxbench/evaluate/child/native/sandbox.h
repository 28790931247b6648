/* What a candidate process is kept from. Each protection is named, and is active or missing with the reason. */
#ifndef PTXBENCH_SANDBOX_H
#define PTXBENCH_SANDBOX_H

#include <stddef.h>

#define MAX_PROTECTIONS 32
#define MAX_PATHS 16

struct protection {
    const char *name;
    int active;
    int error; /* errno; 0 where it is active or left out on purpose */
    const char *reason;
};

struct protections {
    size_t count;
    struct protection list[MAX_PROTECTIONS];
};

struct sandbox_policy {
    int under_tool; /* a profiler or sanitizer needs its own files, sockets and threads */
    int keep_root;  /* counters need the right to read them */
    const char *hidden[MAX_PATHS]; /* folders to be covered; NULL ends */
    const char *needed[MAX_PATHS]; /* folders that must stay readable below hidden ones; NULL ends */
};

/* `result`: 0 or an errno. */
void protection_add(struct protections *all, const char *name, int result);
void protection_leave_out(struct protections *all, const char *name, const char *reason);

/* Leave the machine's namespaces. Where a PID namespace can be had, this returns in its second process, while the first
 * one stays behind and ends as that process ends. */
void sandbox_enter(const struct sandbox_policy *policy, struct protections *all);

/* Files, limits and rights; call after the trusted libraries are loaded and before any thread exists. */
void sandbox_seal(const struct sandbox_policy *policy, struct protections *all);

/* The system call filter, for all threads; call when CUDA is up and before candidate code is loaded. */
void sandbox_filter(const struct sandbox_policy *policy, struct protections *all);

/* parts of the above */
void sandbox_mounts(const struct sandbox_policy *policy, struct protections *all);
void sandbox_privileges(const struct sandbox_policy *policy, struct protections *all);
int sandbox_was_root(void);
int sandbox_has_mounts(void);
int sandbox_has_pids(void);

#endif
