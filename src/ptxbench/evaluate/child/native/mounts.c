/* What the candidate sees of the file system: all read-only, private scratch folders, the judge's folders covered. */
#define _GNU_SOURCE
#include "sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* sys/mount.h and linux/mount.h define the same names in some C libraries. */
int mount(const char *source, const char *target, const char *type, unsigned long flags, const void *data);

#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif
#define SCRATCH "size=256m,mode=1777"
#define EMPTY "size=1m,mode=0755"
#define NO_CODE (MS_NOSUID | MS_NODEV)

static int set_attributes(const char *path, unsigned flags, uint64_t set, uint64_t clear) {
    struct mount_attr attributes = {.attr_set = set, .attr_clr = clear};
    return syscall(SYS_mount_setattr, AT_FDCWD, path, flags, &attributes, sizeof attributes) == 0 ? 0 : errno;
}

static int make_private(void) {
    struct mount_attr attributes = {.propagation = MS_PRIVATE};
    return syscall(SYS_mount_setattr, AT_FDCWD, "/", AT_RECURSIVE, &attributes, sizeof attributes) == 0 ? 0 : errno;
}

static int is_below(const char *path, const char *folder) {
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && path[length] == '/';
}

static int make_folders(char *path, size_t from) {
    for (char *at = path + from;; at++) {
        if (*at != '/' && *at != '\0')
            continue;
        char kept = *at;
        *at = '\0';
        int error = mkdir(path, 0755) == 0 || errno == EEXIST ? 0 : errno;
        *at = kept;
        if (error != 0 || kept == '\0')
            return error;
    }
}

/* Put the folder behind `held` (opened before it was covered) back in its place. */
static int uncover(const char *path, size_t covered, int held) {
    char target[4096], source[64];
    if ((size_t)snprintf(target, sizeof target, "%s", path) >= sizeof target)
        return ENAMETOOLONG;
    snprintf(source, sizeof source, "/proc/self/fd/%d", held);
    int error = make_folders(target, covered + 1);
    if (error == 0 && mount(source, target, NULL, MS_BIND, NULL) != 0)
        error = errno;
    return error;
}

/* Cover `folder` by a new one with `options`, in which only the needed folders appear. */
static int cover(const struct sandbox_policy *policy, const char *folder, const char *options) {
    int held[MAX_PATHS], error = 0;
    struct stat status;
    if (stat(folder, &status) != 0)
        return errno == ENOENT ? 0 : errno;
    for (size_t i = 0; i < MAX_PATHS; i++) {
        const char *path = policy->needed[i];
        held[i] = path != NULL && is_below(path, folder) ? open(path, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    }
    if (mount("ptxbench", folder, "tmpfs", NO_CODE, options) != 0)
        error = errno;
    for (size_t i = 0; i < MAX_PATHS; i++) {
        if (held[i] < 0)
            continue;
        if (error == 0)
            error = uncover(policy->needed[i], strlen(folder), held[i]);
        close(held[i]);
    }
    return error;
}

static int hide(const struct sandbox_policy *policy) {
    int error = 0;
    for (size_t i = 0; i < MAX_PATHS && policy->hidden[i] != NULL; i++) {
        int result = cover(policy, policy->hidden[i], EMPTY);
        if (result == 0 && access(policy->hidden[i], F_OK) == 0)
            result = set_attributes(policy->hidden[i], 0, MOUNT_ATTR_RDONLY, 0);
        if (result != 0)
            error = result;
    }
    return error;
}

/* All but /proc: the CUDA driver names its threads in /proc/self/task and gives up where it cannot (580). */
static int read_only(void) {
    int error = set_attributes("/", AT_RECURSIVE, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, 0);
    return error != 0 ? error : set_attributes("/proc", 0, 0, MOUNT_ATTR_RDONLY);
}

/* A tool keeps its files in /tmp and /dev/shm, so they stay the machine's own, and writable. */
static int read_only_but_scratch(void) {
    static const char *const shared[] = {"/tmp", "/dev/shm"};
    for (size_t i = 0; i < 2; i++)
        if (mount(shared[i], shared[i], NULL, MS_BIND, NULL) != 0)
            return errno;
    int error = read_only();
    for (size_t i = 0; error == 0 && i < 2; i++)
        error = set_attributes(shared[i], 0, 0, MOUNT_ATTR_RDONLY);
    return error;
}

/* Root may open what it owns, so a process that keeps root must not find the disks or the kernel's own memory. */
static int cover_raw_devices(void) {
    DIR *folder = opendir("/dev");
    int error = folder == NULL ? errno : 0;
    for (struct dirent *entry; error == 0 && (entry = readdir(folder)) != NULL;) {
        static const char *const memory[] = {"mem", "kmem", "port"};
        char path[300];
        int raw = entry->d_type == DT_BLK;
        for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
            raw |= strcmp(entry->d_name, memory[i]) == 0;
        snprintf(path, sizeof path, "/dev/%s", entry->d_name);
        if (raw && mount("/dev/null", path, NULL, MS_BIND, NULL) != 0)
            error = errno;
    }
    if (folder != NULL)
        closedir(folder);
    return error;
}

/* /proc is writable; the settings of the kernel below it are not. */
static int freeze_kernel_settings(void) {
    static const char *const paths[] = {"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"};
    int error = 0;
    for (size_t i = 0; error == 0 && i < sizeof paths / sizeof paths[0]; i++) {
        if (access(paths[i], F_OK) != 0)
            continue;
        error = mount(paths[i], paths[i], NULL, MS_BIND, NULL) == 0 ? 0 : errno;
        if (error == 0)
            error = set_attributes(paths[i], 0, MOUNT_ATTR_RDONLY, 0);
    }
    return error;
}

static void all_missing(struct protections *all) {
    static const char *const names[] = {"read_only_files", "private_tmp", "private_shm", "hidden_folders",
                                        "private_proc",    "kernel_settings", "no_raw_devices"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        protection_leave_out(all, names[i], "needs a mount namespace");
}

void sandbox_mounts(const struct sandbox_policy *policy, struct protections *all) {
    if (!sandbox_has_mounts()) {
        all_missing(all);
        return;
    }
    int error = make_private();
    if (policy->under_tool) {
        protection_add(all, "read_only_files", error != 0 ? error : read_only_but_scratch());
        protection_leave_out(all, "private_tmp", "the tool keeps its files there");
        protection_leave_out(all, "private_shm", "the tool keeps its files there");
    } else {
        if (error == 0)
            error = read_only();
        protection_add(all, "read_only_files", error);
        protection_add(all, "private_tmp", cover(policy, "/tmp", SCRATCH));
        protection_add(all, "private_shm", cover(policy, "/dev/shm", SCRATCH));
    }
    int hidden = hide(policy);
    if (chdir("/") != 0) /* a working folder stays reachable below a cover */
        hidden = errno;
    protection_add(all, "hidden_folders", hidden);
    if (!sandbox_has_pids())
        protection_leave_out(all, "private_proc", "needs a PID namespace");
    else
        protection_add(all, "private_proc",
                       mount("proc", "/proc", "proc", NO_CODE | MS_NOEXEC, NULL) == 0 ? 0 : errno);
    protection_add(all, "kernel_settings", freeze_kernel_settings());
    protection_add(all, "no_raw_devices", cover_raw_devices());
}
