/* What host code may ask of the kernel: a short list, because without a GPU a host function needs little. */
#define _GNU_SOURCE
#include "sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "the system call filter knows x86-64 and aarch64"
#endif

#define MEMORY ((rlim_t)2 << 30)

static const int ALLOWED[] = {
    /* memory */
    SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_brk, SYS_madvise,
    /* the socket, and files that are open or may be opened for reading */
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_lseek, SYS_close, SYS_fstat, SYS_newfstatat,
    SYS_readlinkat, SYS_faccessat, SYS_getcwd,
    /* threads of this process, signals to itself */
    SYS_futex, SYS_set_robust_list, SYS_rseq, SYS_sched_yield, SYS_sched_getaffinity, SYS_membarrier, SYS_gettid,
    SYS_getpid, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack, SYS_exit, SYS_exit_group,
    SYS_set_tid_address,
    /* clocks, and facts about the machine */
    SYS_clock_gettime, SYS_clock_getres, SYS_clock_nanosleep, SYS_nanosleep, SYS_gettimeofday, SYS_getrandom,
    SYS_uname, SYS_sysinfo, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getcpu,
#if defined(__x86_64__)
    SYS_access, SYS_stat, SYS_readlink, SYS_time, SYS_arch_prctl,
#endif
};

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define UPPER(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field) + 4)
#define ANSWER(value) BPF_STMT(BPF_RET | BPF_K, value)
#define ALLOW ANSWER(SECCOMP_RET_ALLOW)
#define REFUSE ANSWER(SECCOMP_RET_ERRNO | EPERM)
#define IF(test, value, yes, no) BPF_JUMP(BPF_JMP | (test) | BPF_K, value, yes, no)
#define WRITING (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)

static struct sock_filter code[256];
static unsigned short length;

static void put(const struct sock_filter *part, size_t count) {
    for (size_t i = 0; i < count && length < sizeof code / sizeof code[0]; i++)
        code[length++] = part[i];
}

#define PUT(...)                                                                                                       \
    do {                                                                                                               \
        const struct sock_filter part[] = {__VA_ARGS__};                                                               \
        put(part, sizeof part / sizeof part[0]);                                                                       \
    } while (0)

static void build(void) {
    PUT(LOAD(arch), IF(BPF_JEQ, ARCHITECTURE, 1, 0), ANSWER(SECCOMP_RET_KILL_PROCESS), LOAD(nr));
    for (size_t i = 0; i < sizeof ALLOWED / sizeof ALLOWED[0]; i++)
        PUT(IF(BPF_JEQ, (unsigned)ALLOWED[i], 0, 1), ALLOW);
    PUT(IF(BPF_JEQ, SYS_openat, 0, 4), LOAD(args[2]), IF(BPF_JSET, WRITING, 0, 1), REFUSE, ALLOW);
#if defined(__x86_64__)
    PUT(IF(BPF_JEQ, SYS_open, 0, 4), LOAD(args[1]), IF(BPF_JSET, WRITING, 0, 1), REFUSE, ALLOW);
#endif
    PUT(IF(BPF_JEQ, SYS_clone, 0, 4), LOAD(args[0]), IF(BPF_JSET, CLONE_THREAD, 1, 0), REFUSE, ALLOW);
    PUT(IF(BPF_JEQ, SYS_tgkill, 0, 4), LOAD(args[0]), IF(BPF_JEQ, (unsigned)getpid(), 1, 0), REFUSE, ALLOW);
    /* clone3 passes its flags by pointer, out of the filter's sight; the C library falls back to clone. */
    PUT(IF(BPF_JEQ, SYS_clone3, 0, 1), ANSWER(SECCOMP_RET_ERRNO | ENOSYS));
    /* Limits may be asked for, not set. */
    PUT(IF(BPF_JEQ, SYS_prlimit64, 0, 6), LOAD(args[2]), IF(BPF_JEQ, 0, 0, 3), UPPER(args[2]), IF(BPF_JEQ, 0, 0, 1),
        ALLOW, REFUSE);
    PUT(REFUSE);
}

static int limits(void) {
    static const struct {
        int resource;
        rlim_t value;
    } table[] = {
        {RLIMIT_CORE, 0}, {RLIMIT_NOFILE, 64}, {RLIMIT_FSIZE, 1 << 20}, {RLIMIT_DATA, MEMORY}, {RLIMIT_MSGQUEUE, 0},
    };
    signal(SIGXFSZ, SIG_IGN); /* too much output is cut off; it is no crash */
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct rlimit limit = {table[i].value, table[i].value};
        if (setrlimit(table[i].resource, &limit) != 0)
            return -1;
    }
    return 0;
}

int sandbox_enter(void) {
    build();
    struct sock_fprog filter = {length, code};
    if (limits() != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0 ? 0 : -1;
}
