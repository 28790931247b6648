/* Namespaces, the processes that keep watch over the candidate, and resource limits; files are in mounts.c. */
#define _GNU_SOURCE
#include "sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

static struct {
    int was_root, mounts, pids;
} own;

int sandbox_was_root(void) { return own.was_root; }
int sandbox_has_mounts(void) { return own.mounts; }
int sandbox_has_pids(void) { return own.pids; }

void protection_add(struct protections *all, const char *name, int result) {
    if (all->count < MAX_PROTECTIONS)
        all->list[all->count++] =
            (struct protection){name, result == 0, result, result == 0 ? "" : strerrordesc_np(result)};
}

void protection_leave_out(struct protections *all, const char *name, const char *reason) {
    if (all->count < MAX_PROTECTIONS)
        all->list[all->count++] = (struct protection){name, 0, 0, reason};
}

static int write_file(const char *path, const char *text) {
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return errno;
    int error = write(file, text, strlen(text)) < 0 ? errno : 0;
    close(file);
    return error;
}

/* Become nobody in a user namespace of our own, which gives an ordinary user the right to the other namespaces. */
static int enter_user_namespace(void) {
    char map[64];
    uid_t uid = getuid();
    gid_t gid = getgid();
    if (unshare(CLONE_NEWUSER) != 0)
        return errno;
    int error = write_file("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "%d %u 1", NOBODY, (unsigned)uid);
    if (error == 0)
        error = write_file("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "%d %u 1", NOBODY, (unsigned)gid);
    return error != 0 ? error : write_file("/proc/self/gid_map", map);
}

static void die_with_parent(struct protections *all) {
    int result = prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 ? 0 : errno;
    if (all != NULL)
        protection_add(all, "death_with_judge", result);
}

/* Ends as `status` says, so that whoever waits for this process sees what became of the candidate. */
static _Noreturn void end_as(int status) {
    if (WIFSIGNALED(status)) {
        sigset_t none;
        sigemptyset(&none);
        signal(WTERMSIG(status), SIG_DFL);
        sigprocmask(SIG_SETMASK, &none, NULL);
        kill(getpid(), WTERMSIG(status));
    }
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* The first process: outside the PID namespace. SIGTERM ends everything inside, and it waits until all is gone. */
static _Noreturn void watch_from_outside(pid_t init, int status_pipe, const sigset_t *watched) {
    int status = 0, reported = 0, signal_number;
    for (;;) {
        pid_t ended = waitpid(init, &status, WNOHANG);
        if (ended == init)
            break;
        sigwait(watched, &signal_number);
        if (signal_number == SIGTERM)
            kill(init, SIGKILL);
    }
    if (read(status_pipe, &reported, sizeof reported) == (ssize_t)sizeof reported)
        status = reported;
    end_as(status);
}

/* Process 1 of the namespace: an init that outlives the candidate by a moment to tell how it ended. Without it the
 * candidate would be process 1 itself, to which default signal actions do not apply. */
static _Noreturn void watch_from_inside(pid_t candidate, int status_pipe) {
    int status = 0;
    pid_t ended;
    do
        ended = waitpid(-1, &status, 0);
    while (ended != candidate && (ended > 0 || errno == EINTR));
    if (write(status_pipe, &status, sizeof status) != (ssize_t)sizeof status)
        _exit(112);
    _exit(0);
}

static void close_all_from(int first, int except) {
    if (except >= first) {
        if (except > first)
            close_range((unsigned)first, (unsigned)except - 1, 0);
        first = except + 1;
    }
    close_range((unsigned)first, ~0u, 0);
}

/* Fork twice: the namespace's init, then the candidate; only the candidate returns. */
static int enter_pid_namespace(void) {
    int status_pipe[2];
    sigset_t watched, before;
    if (unshare(CLONE_NEWPID) != 0 || pipe2(status_pipe, O_CLOEXEC) != 0)
        return errno;
    sigemptyset(&watched);
    sigaddset(&watched, SIGTERM);
    sigaddset(&watched, SIGCHLD);
    sigprocmask(SIG_BLOCK, &watched, &before);
    pid_t init = fork();
    if (init < 0)
        return errno;
    if (init > 0) {
        close_all_from(3, status_pipe[0]);
        watch_from_outside(init, status_pipe[0], &watched);
    }
    die_with_parent(NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    pid_t candidate = fork();
    if (candidate < 0)
        _exit(113);
    if (candidate > 0) {
        close_all_from(3, status_pipe[1]);
        watch_from_inside(candidate, status_pipe[1]);
    }
    close(status_pipe[0]);
    close(status_pipe[1]);
    own.pids = 1;
    return 0;
}

static void own_session(struct protections *all) {
    int result = getsid(0) == getpgrp() || setsid() >= 0 ? 0 : errno;
    protection_add(all, "own_session", result);
}

void sandbox_enter(const struct sandbox_policy *policy, struct protections *all) {
    static const char *under_tool = "the tool must reach into the process";
    own.was_root = geteuid() == 0;
    die_with_parent(NULL);
    own_session(all);
    int mounts = unshare(CLONE_NEWNS) == 0 ? 0 : errno;
    if (mounts != 0 && !policy->under_tool) {
        protection_add(all, "user_namespace", enter_user_namespace());
        mounts = unshare(CLONE_NEWNS) == 0 ? 0 : errno;
    }
    own.mounts = mounts == 0;
    protection_add(all, "mount_namespace", mounts);
    if (policy->under_tool) {
        protection_leave_out(all, "network_namespace", under_tool);
        protection_leave_out(all, "ipc_namespace", under_tool);
        protection_leave_out(all, "uts_namespace", under_tool);
        protection_leave_out(all, "pid_namespace", under_tool);
    } else {
        protection_add(all, "network_namespace", unshare(CLONE_NEWNET) == 0 ? 0 : errno);
        protection_add(all, "ipc_namespace", unshare(CLONE_NEWIPC) == 0 ? 0 : errno);
        protection_add(all, "uts_namespace", unshare(CLONE_NEWUTS) == 0 ? 0 : errno);
        protection_add(all, "pid_namespace", enter_pid_namespace());
    }
}

static void limits(struct protections *all) {
    /* Address space stays unlimited: CUDA reserves far more than it uses. */
    static const struct {
        int resource;
        rlim_t value;
    } table[] = {
        {RLIMIT_CORE, 0},
        {RLIMIT_NOFILE, 1024},
        {RLIMIT_NPROC, 1024}, /* threads count too */
        {RLIMIT_FSIZE, 16u << 20},
        {RLIMIT_DATA, (rlim_t)16 << 30},
        {RLIMIT_MSGQUEUE, 0},
    };
    int error = 0;
    signal(SIGXFSZ, SIG_IGN); /* too much output is cut off; it is no crash */
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct rlimit now, limit = {table[i].value, table[i].value};
        if (getrlimit(table[i].resource, &now) == 0 && now.rlim_max < limit.rlim_max)
            limit.rlim_cur = limit.rlim_max = now.rlim_max;
        if (setrlimit(table[i].resource, &limit) != 0)
            error = errno;
    }
    protection_add(all, "resource_limits", error);
}

void sandbox_seal(const struct sandbox_policy *policy, struct protections *all) {
    sandbox_mounts(policy, all);
    limits(all);
    sandbox_privileges(policy, all);
    protection_add(all, "no_new_privileges", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? 0 : errno);
    protection_add(all, "undumpable", prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 ? 0 : errno);
    die_with_parent(all); /* a change of user has cleared it */
}
