// Runs a command that can read and write only what it was given, by Landlock (landlock(7), Linux 5.13 and later).
//
//   confine --probe                             exit 0 when this kernel can confine, 3 when it cannot
//   confine [-r PATH]... [-w PATH]... -- COMMAND [ARGUMENT]...
//
// -r: the file or folder may be read and executed; -w: also written. Paths that do not exist are left out. Everything
// else on the file system is out of reach of the command and of all that it starts. Exit 125: confining failed.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// Rights that later versions of the interface added; headers of older systems lack the names.
#define RIGHT_REFER (1ULL << 13)
#define RIGHT_TRUNCATE (1ULL << 14)

static const uint64_t kReadFile = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE;
static const uint64_t kRead = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;

// Every right on files of the first version, and of later ones as far as the running kernel knows them.
static uint64_t all_rights(int version) {
  uint64_t rights = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;
  if (version >= 2) rights |= RIGHT_REFER;
  if (version >= 3) rights |= RIGHT_TRUNCATE;
  return rights;
}

static int fail(const char* what, const char* on) {
  fprintf(stderr, "confine: %s %s: %s\n", what, on, strerror(errno));
  return 125;
}

static int allow(int rules, const char* path, uint64_t rights, uint64_t file_rights) {
  const int target = open(path, O_PATH | O_CLOEXEC);
  if (target < 0) return errno == ENOENT ? 0 : fail("open", path);
  struct stat status;
  if (fstat(target, &status) != 0) return fail("stat", path);
  struct landlock_path_beneath_attr rule = {.parent_fd = target, .allowed_access = rights};
  if (!S_ISDIR(status.st_mode)) rule.allowed_access = file_rights;
  const long result = syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
  if (result != 0) return fail("allow", path);
  close(target);
  return 0;
}

int main(int count, char** words) {
  const long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (count == 2 && strcmp(words[1], "--probe") == 0) return version >= 1 ? 0 : 3;
  if (version < 1) return fail("landlock", "ruleset");

  const uint64_t all = all_rights((int)version);
  const uint64_t write_file =
      kReadFile | LANDLOCK_ACCESS_FS_WRITE_FILE | (version >= 3 ? RIGHT_TRUNCATE : 0);
  const struct landlock_ruleset_attr handled = {.handled_access_fs = all};
  const int rules = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0);
  if (rules < 0) return fail("landlock", "ruleset");

  int at = 1;
  for (; at + 1 < count && strcmp(words[at], "--") != 0; at += 2) {
    const int writes = strcmp(words[at], "-w") == 0;
    const int failed = allow(rules, words[at + 1], writes ? all : kRead, writes ? write_file : kReadFile);
    if (failed) return failed;
  }
  if (at + 1 >= count) {
    errno = EINVAL;
    return fail("arguments", "without a command");
  }
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail("prctl", "no_new_privs");
  if (syscall(SYS_landlock_restrict_self, rules, 0) != 0) return fail("landlock", "restrict_self");
  close(rules);
  execv(words[at + 1], words + at + 1);
  return fail("exec", words[at + 1]);
}
