/* Who the candidate runs as: nobody, without capabilities, or a root that may only read counters. */
#define _GNU_SOURCE
#include "sandbox.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOBODY 65534
#define BIT(capability) (UINT64_C(1) << (capability))

/* Reading counters takes SYS_ADMIN or PERFMON; the tool's files belong to root. No PTRACE: the judge stays out of
 * reach. */
static const uint64_t FOR_COUNTERS = BIT(CAP_SYS_ADMIN) | BIT(CAP_PERFMON) | BIT(CAP_DAC_OVERRIDE);

static int set_capabilities(uint64_t kept) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {
        {.effective = (unsigned)kept, .permitted = (unsigned)kept},
        {.effective = (unsigned)(kept >> 32), .permitted = (unsigned)(kept >> 32)},
    };
    for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; capability++)
        if (!(kept & BIT(capability)))
            (void)prctl(PR_CAPBSET_DROP, capability, 0, 0, 0); /* refused where there is none to drop */
    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    return syscall(SYS_capset, &header, data) == 0 ? 0 : errno;
}

static int become_nobody(void) {
    if (setgroups(0, NULL) != 0 || setresgid(NOBODY, NOBODY, NOBODY) != 0 || setresuid(NOBODY, NOBODY, NOBODY) != 0)
        return errno;
    return setresuid(0, 0, 0) == 0 ? EPERM : 0;
}

void sandbox_privileges(const struct sandbox_policy *policy, struct protections *all) {
    if (policy->keep_root && geteuid() == 0) {
        protection_leave_out(all, "unprivileged_user", "counters need root's rights");
        protection_leave_out(all, "no_capabilities", set_capabilities(FOR_COUNTERS) == 0
                                                         ? "counters need SYS_ADMIN or PERFMON"
                                                         : "they could not be given up");
        return;
    }
    if (geteuid() == 0) {
        for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; capability++)
            (void)prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
        protection_add(all, "unprivileged_user", become_nobody());
    } else if (sandbox_was_root()) {
        protection_leave_out(all, "unprivileged_user", "root outside of its own user namespace");
    } else {
        protection_add(all, "unprivileged_user", 0); /* an ordinary user already */
    }
    protection_add(all, "no_capabilities", set_capabilities(0));
}
