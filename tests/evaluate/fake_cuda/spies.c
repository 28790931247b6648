/* Candidates for tests that look for what is none of their business; findings go to the output tensor. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <tvm/ffi/c_api.h>
#include <unistd.h>

#define CANDIDATE(name)                                                                                                \
    int __tvm_ffi_##name(void *self, const TVMFFIAny *arguments, int32_t count, TVMFFIAny *result);                    \
    int __tvm_ffi_##name(void *self, const TVMFFIAny *arguments, int32_t count, TVMFFIAny *result)

/* What the test tells a spy, at the start of the input. */
struct hint {
    int32_t judge;
    char secret_file[252];
    char outside_file[256];
};

static void *data(const TVMFFIAny *arguments, int index) { return ((DLTensor *)arguments[index].v_ptr)->data; }

static int outcome(long result) { return result >= 0 ? 0 : errno; }

static int try_open(const char *path, int flags) {
    int fd = open(path, flags, 0600);
    int error = outcome(fd);
    if (fd >= 0)
        close(fd);
    return error;
}

static int try_fork(void) {
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    return outcome(child);
}

static int read_judge(int judge) {
    char byte, path[64];
    struct iovec here = {&byte, 1}, there = {(void *)&read_judge, 1};
    snprintf(path, sizeof path, "/proc/%d/mem", judge);
    if (try_open(path, O_RDONLY) == 0)
        return 0;
    return outcome(syscall(SYS_process_vm_readv, judge, &here, 1, &there, 1, 0));
}

/* The first disk that can be opened, if there is one. */
static int read_disk(void) {
    DIR *folder = opendir("/dev");
    int error = ENODEV;
    for (struct dirent *entry; error != 0 && folder != NULL && (entry = readdir(folder)) != NULL;) {
        char path[300];
        struct stat status;
        snprintf(path, sizeof path, "/dev/%s", entry->d_name);
        if (stat(path, &status) == 0 && S_ISBLK(status.st_mode))
            error = try_open(path, O_RDONLY);
    }
    return error;
}

static int visible_processes(void) {
    DIR *folder = opendir("/proc");
    int seen = 0;
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;)
        seen += entry->d_name[0] >= '0' && entry->d_name[0] <= '9';
    return seen;
}

/* One errno per attempt, 0 where it succeeded; the order is the test's. */
CANDIDATE(spy) {
    (void)self, (void)count, (void)result;
    const struct hint *hint = data(arguments, 0);
    int32_t *out = data(arguments, 1);
    char *const nothing[] = {"/nowhere", NULL}; /* where this is not refused, the spy goes on */
    struct perf_event_attr event = {.type = PERF_TYPE_SOFTWARE, .size = sizeof event};
    union bpf_attr program = {0};
    char scratch[64];
    snprintf(scratch, sizeof scratch, "/tmp/ptxbench-spy-%d", hint->judge);
    *out++ = read_judge(hint->judge);
    *out++ = outcome(ptrace(PTRACE_ATTACH, hint->judge, NULL, NULL));
    *out++ = outcome(kill(hint->judge, 0));
    *out++ = outcome(syscall(SYS_pidfd_open, hint->judge, 0));
    *out++ = outcome(socket(AF_INET, SOCK_STREAM, 0));
    *out++ = outcome(socket(AF_UNIX, SOCK_STREAM, 0));
    *out++ = outcome(socket(AF_NETLINK, SOCK_RAW, 0));
    *out++ = try_open(hint->outside_file, O_WRONLY | O_CREAT);
    *out++ = try_open(hint->secret_file, O_RDONLY);
    *out++ = outcome(execve(nothing[0], nothing, NULL));
    *out++ = try_fork();
    *out++ = outcome(unshare(CLONE_NEWUSER));
    *out++ = outcome(mount("x", "/tmp", "tmpfs", 0, NULL));
    *out++ = outcome(syscall(SYS_perf_event_open, &event, 0, -1, -1, 0));
    *out++ = outcome(syscall(SYS_bpf, BPF_PROG_LOAD, &program, sizeof program));
    *out++ = outcome(setuid(0) == 0 ? 0 : -1);
    *out++ = read_disk();
    *out++ = try_open("/proc/sys/kernel/panic", O_WRONLY);
    *out++ = try_open(scratch, O_WRONLY | O_CREAT); /* this one is allowed */
    *out++ = visible_processes();
    *out++ = (int32_t)getuid();
    return 0;
}

struct needle {
    unsigned char masked[32]; /* each byte of the secret XOR 0x5a, so that the needle itself is not found */
};

static int matches(const unsigned char *at, const struct needle *needle) {
    for (size_t i = 0; i < sizeof needle->masked; i++)
        if ((at[i] ^ 0x5a) != needle->masked[i])
            return 0;
    return 1;
}

static int found_in(const unsigned char *from, size_t size, const struct needle *needle) {
    int found = 0;
    for (size_t i = 0; i + sizeof needle->masked <= size; i++)
        found += from[i] == (needle->masked[0] ^ 0x5a) && matches(from + i, needle);
    return found;
}

static int found_in_memory(const struct needle *needle, int *regions) {
    char line[512], rights[8];
    unsigned long from, to;
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 && rights[0] == 'r' && strstr(line, "[v") == NULL) {
            found += found_in((const unsigned char *)from, to - from, needle);
            ++*regions;
        }
    return found;
}

static int found_in_descriptors(const struct needle *needle) {
    int found = 0;
    for (int fd = 0; fd < 1024; fd++) {
        struct stat status;
        if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0)
            continue;
        void *memory = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (memory != MAP_FAILED)
            found += found_in(memory, (size_t)status.st_size, needle);
    }
    return found;
}

/* output: places in memory, places behind descriptors, regions looked at. */
CANDIDATE(scan) {
    (void)self, (void)count, (void)result;
    const struct needle *needle = data(arguments, 0);
    int32_t *out = data(arguments, 1);
    int regions = 0;
    out[1] = found_in_descriptors(needle);
    out[0] = found_in_memory(needle, &regions);
    out[2] = regions;
    return 0;
}
