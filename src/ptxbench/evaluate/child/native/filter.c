/* The seccomp filter: a list of refusals over "allow", because nobody can list what a CUDA driver needs. */
#define _GNU_SOURCE
#include "sandbox.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "the system call filter knows x86-64 and aarch64"
#endif

#define MAX_PROGRAM 512

static const int REFUSED[] = {
    /* other processes' memory and descriptors */
    SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_process_madvise, SYS_pidfd_getfd, SYS_pidfd_open,
    SYS_kcmp, SYS_userfaultfd,
    /* signals to other threads by any road that names no process */
    SYS_pidfd_send_signal, SYS_tkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo,
    /* the kernel itself */
    SYS_bpf, SYS_keyctl, SYS_add_key, SYS_request_key, SYS_kexec_load, SYS_kexec_file_load, SYS_reboot, SYS_init_module,
    SYS_finit_module, SYS_delete_module, SYS_swapon, SYS_swapoff, SYS_acct, SYS_quotactl, SYS_syslog, SYS_settimeofday,
    SYS_clock_settime, SYS_clock_adjtime, SYS_adjtimex, SYS_sethostname, SYS_setdomainname, SYS_io_uring_setup,
    SYS_io_uring_enter, SYS_io_uring_register,
    /* namespaces and mounts */
    SYS_setns, SYS_unshare, SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_move_mount, SYS_open_tree,
    SYS_fsopen, SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_mount_setattr, SYS_open_by_handle_at, SYS_name_to_handle_at,
#if defined(__x86_64__)
    SYS_iopl, SYS_ioperm,
#endif
};

static const int REFUSED_WITHOUT_TOOL[] = {
    SYS_perf_event_open, SYS_execve, SYS_execveat,
#if defined(__x86_64__)
    SYS_fork, SYS_vfork,
#endif
};

/* Families of sockets that may still be made once CUDA is up; -1 ends. None is needed by driver 580. */
static const int SOCKETS_ALLOWED[] = {-1};

struct program {
    unsigned short length;
    struct sock_filter code[MAX_PROGRAM];
};

static void emit(struct program *program, struct sock_filter instruction) {
    if (program->length < MAX_PROGRAM)
        program->code[program->length++] = instruction;
}

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define ANSWER(value) BPF_STMT(BPF_RET | BPF_K, value)
#define REFUSE ANSWER(SECCOMP_RET_ERRNO | EPERM)
#define IF(test, value, yes, no) BPF_JUMP(BPF_JMP | (test) | BPF_K, value, yes, no)

static void put(struct program *program, const struct sock_filter *code, size_t count) {
    for (size_t i = 0; i < count; i++)
        emit(program, code[i]);
}

#define PUT(program, ...)                                                                                              \
    do {                                                                                                               \
        const struct sock_filter code_[] = {__VA_ARGS__};                                                              \
        put(program, code_, sizeof code_ / sizeof code_[0]);                                                           \
    } while (0)

static void refuse(struct program *program, const int *calls, size_t count) {
    for (size_t i = 0; i < count; i++)
        PUT(program, IF(BPF_JEQ, (unsigned)calls[i], 0, 1), REFUSE);
}

/* Signals to this process only: the first argument of kill and tgkill. */
static void own_signals_only(struct program *program, unsigned pid) {
    static const int calls[] = {SYS_kill, SYS_tgkill};
    for (size_t i = 0; i < 2; i++)
        PUT(program, IF(BPF_JEQ, (unsigned)calls[i], 0, 4), LOAD(args[0]), IF(BPF_JEQ, pid, 1, 0), REFUSE, LOAD(nr));
}

static void threads_only(struct program *program) {
    PUT(program, IF(BPF_JEQ, SYS_clone, 0, 4), LOAD(args[0]), IF(BPF_JSET, CLONE_THREAD, 1, 0), REFUSE, LOAD(nr));
    /* clone3 passes its flags by pointer, out of the filter's sight; the C library falls back to clone. */
    PUT(program, IF(BPF_JEQ, SYS_clone3, 0, 1), ANSWER(SECCOMP_RET_ERRNO | ENOSYS));
}

static void sockets(struct program *program) {
    unsigned char allowed = 0;
    while (SOCKETS_ALLOWED[allowed] >= 0)
        allowed++;
    PUT(program, IF(BPF_JEQ, SYS_socket, 0, (unsigned char)(3 + 2 * allowed)), LOAD(args[0]));
    for (int i = 0; SOCKETS_ALLOWED[i] >= 0; i++)
        PUT(program, IF(BPF_JEQ, (unsigned)SOCKETS_ALLOWED[i], 0, 1), ANSWER(SECCOMP_RET_ALLOW));
    PUT(program, REFUSE, LOAD(nr));
}

static void build(struct program *program, const struct sandbox_policy *policy) {
    PUT(program, LOAD(arch), IF(BPF_JEQ, ARCHITECTURE, 1, 0), ANSWER(SECCOMP_RET_KILL_PROCESS), LOAD(nr));
#if defined(__x86_64__)
    PUT(program, IF(BPF_JGE, 0x40000000u, 0, 1), REFUSE); /* the x32 twin of every call */
#endif
    refuse(program, REFUSED, sizeof REFUSED / sizeof REFUSED[0]);
    own_signals_only(program, (unsigned)getpid());
    if (!policy->under_tool) {
        refuse(program, REFUSED_WITHOUT_TOOL, sizeof REFUSED_WITHOUT_TOOL / sizeof REFUSED_WITHOUT_TOOL[0]);
        threads_only(program);
        sockets(program);
    }
    PUT(program, ANSWER(SECCOMP_RET_ALLOW));
}

void sandbox_filter(const struct sandbox_policy *policy, struct protections *all) {
    static const char *const by_filter[] = {"no_new_programs", "no_new_processes", "no_sockets"};
    struct program program = {0};
    build(&program, policy);
    struct sock_fprog filter = {program.length, program.code};
    int error = program.length == MAX_PROGRAM ? E2BIG : 0;
    if (error == 0 && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) != 0)
        error = errno;
    protection_add(all, "system_call_filter", error);
    for (size_t i = 0; i < sizeof by_filter / sizeof by_filter[0]; i++)
        if (policy->under_tool)
            protection_leave_out(all, by_filter[i], "the tool needs it");
        else
            protection_add(all, by_filter[i], error);
}
