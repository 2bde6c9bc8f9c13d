#include "sandbox/seccomp.h"

#include <errno.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>

/* Allowed whatever the arguments are. Not here, each for its reason:
 *   inotify, fanotify, mq_*, keyctl and kin, SysV IPC, memfd_secret   counted per uid, which is the service's
 * too io_setup and kin                                                  counted for the whole host sync,
 * syncfs                                                      flush the host's file systems userfaultfd,
 * io_uring, bpf, perf_event_open, vmsplice             large kernel surface, no use to a worker ptrace,
 * process_vm_*, process_madvise, pidfd_getfd, kcmp          reach into other processes mount and its new
 * family, pivot_root, chroot, unshare, setns      change what the seal is made of open_by_handle_at,
 * name_to_handle_at                              leave the mounts modules, kexec, reboot, swap, quota,
 * clocks, host name, acct, syslog, iopl, ioperm, modify_ldt, NUMA Kept by runc for itself between the filter
 * and execve: fstatfs, close_range, getdents64, fcntl (docker.md 2). */
static const char *const allowed[] = {
    /* processes and threads */
    "execve", "execveat", "exit", "exit_group", "fork", "vfork", "wait4", "waitid", "kill", "tkill", "tgkill",
    "getpid", "getppid", "gettid", "getpgid", "getpgrp", "setpgid", "getsid", "setsid", "pidfd_open",
    "pidfd_send_signal", "set_tid_address", "set_robust_list", "get_robust_list", "rseq", "membarrier",
    "restart_syscall", "arch_prctl", "getcpu", "sched_yield", "sched_getaffinity", "sched_setaffinity",
    "sched_getattr", "sched_setattr", "sched_getparam", "sched_setparam", "sched_getscheduler",
    "sched_setscheduler", "sched_get_priority_max", "sched_get_priority_min", "sched_rr_get_interval",
    "getpriority", "setpriority", "ioprio_get", "ioprio_set", "getrlimit", "setrlimit", "prlimit64",
    "getrusage", "times", "uname", "sysinfo", "getrandom", "futex", "futex_waitv", "futex_wake", "futex_wait",
    "futex_requeue",
    /* identities: without capabilities only the present one can be set again */
    "getuid", "geteuid", "getgid", "getegid", "getresuid", "getresgid", "getgroups", "setuid", "setgid",
    "setreuid", "setregid", "setresuid", "setresgid", "setfsuid", "setfsgid", "setgroups", "capget", "capset",
    /* signals */
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigpending", "rt_sigtimedwait", "rt_sigsuspend",
    "rt_sigqueueinfo", "rt_tgsigqueueinfo", "sigaltstack", "signalfd", "signalfd4", "pause", "alarm",
    /* memory */
    "brk", "mmap", "munmap", "mremap", "mprotect", "pkey_mprotect", "pkey_alloc", "pkey_free", "madvise",
    "msync", "mincore", "mlock", "mlock2", "mlockall", "munlock", "munlockall", "memfd_create",
    "map_shadow_stack", "mseal",
    /* time */
    "clock_gettime", "clock_getres", "clock_nanosleep", "nanosleep", "gettimeofday", "time", "getitimer",
    "setitimer", "timer_create", "timer_settime", "timer_gettime", "timer_getoverrun", "timer_delete",
    "timerfd_create", "timerfd_settime", "timerfd_gettime",
    /* descriptors */
    "read", "readv", "pread64", "preadv", "preadv2", "write", "writev", "pwrite64", "pwritev", "pwritev2",
    "lseek", "open", "openat", "openat2", "creat", "close", "close_range", "dup", "dup2", "dup3", "fcntl",
    "flock", "pipe", "pipe2", "eventfd", "eventfd2", "poll", "ppoll", "select", "pselect6", "epoll_create",
    "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "sendfile", "splice", "tee",
    "copy_file_range", "readahead", "fadvise64", "fallocate", "ftruncate", "truncate", "fsync", "fdatasync",
    "sync_file_range", "cachestat",
    /* files */
    "stat", "lstat", "fstat", "newfstatat", "statx", "statfs", "fstatfs", "access", "faccessat", "faccessat2",
    "getcwd", "chdir", "fchdir", "getdents", "getdents64", "mkdir", "mkdirat", "rmdir", "rename", "renameat",
    "renameat2", "link", "linkat", "symlink", "symlinkat", "readlink", "readlinkat", "unlink", "unlinkat",
    "mknod", "mknodat", "umask", "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchown",
    "fchownat", "utime", "utimes", "futimesat", "utimensat", "getxattr", "lgetxattr", "fgetxattr", "setxattr",
    "lsetxattr", "fsetxattr", "listxattr", "llistxattr", "flistxattr", "removexattr", "lremovexattr",
    "fremovexattr",
    /* sockets that exist already; making one is restricted below */
    "connect", "bind", "listen", "accept", "accept4", "getsockname", "getpeername", "getsockopt",
    "setsockopt", "sendto", "sendmsg", "sendmmsg", "recvfrom", "recvmsg", "recvmmsg", "shutdown"};

#define NEW_NAMESPACES                                                                                       \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |            \
     CLONE_NEWNET)
#define LOW_32 0xffffffffULL
#define ALL_64 0xffffffffffffffffULL

/* Allowed when (argument & mask) == value. The kernel reads the arguments of socket, ioctl and prctl as 32
 * bits: comparing all 64 would let a guest name the same number differently. */
struct rule {
    const char *name;
    unsigned index;
    uint64_t mask, value;
};

/* No TIOCSTI (0x5412) and no TIOCLINUX (0x541c): they type into a terminal. */
static const struct rule rules[] = {
    {"socket", 0, LOW_32, AF_UNIX},
    {"socketpair", 0, LOW_32, AF_UNIX},
    {"clone", 0, (uint64_t)NEW_NAMESPACES, 0},
    {"personality", 0, ALL_64, 0},
    {"personality", 0, ALL_64, LOW_32}, /* asks which it is */
    {"prctl", 0, LOW_32, PR_SET_PDEATHSIG},
    {"prctl", 0, LOW_32, PR_GET_PDEATHSIG},
    {"prctl", 0, LOW_32, PR_GET_DUMPABLE},
    {"prctl", 0, LOW_32, PR_SET_DUMPABLE},
    {"prctl", 0, LOW_32, PR_GET_KEEPCAPS},
    {"prctl", 0, LOW_32, PR_SET_KEEPCAPS},
    {"prctl", 0, LOW_32, PR_SET_NAME},
    {"prctl", 0, LOW_32, PR_GET_NAME},
    {"prctl", 0, LOW_32, PR_GET_SECCOMP},
    {"prctl", 0, LOW_32, PR_CAPBSET_READ},
    {"prctl", 0, LOW_32, PR_GET_SECUREBITS},
    {"prctl", 0, LOW_32, PR_SET_TIMERSLACK},
    {"prctl", 0, LOW_32, PR_GET_TIMERSLACK},
    {"prctl", 0, LOW_32, PR_SET_CHILD_SUBREAPER},
    {"prctl", 0, LOW_32, PR_GET_CHILD_SUBREAPER},
    {"prctl", 0, LOW_32, PR_SET_NO_NEW_PRIVS},
    {"prctl", 0, LOW_32, PR_GET_NO_NEW_PRIVS},
    {"prctl", 0, LOW_32, PR_GET_TID_ADDRESS},
    {"prctl", 0, LOW_32, PR_SET_THP_DISABLE},
    {"prctl", 0, LOW_32, PR_GET_THP_DISABLE},
    {"prctl", 0, LOW_32, PR_CAP_AMBIENT},
    {"prctl", 0, LOW_32, 0x53564d41}, /* PR_SET_VMA: names of anonymous memory */
    {"ioctl", 1, LOW_32, 0x5401},     /* TCGETS, which is isatty() */
    {"ioctl", 1, LOW_32, 0x5402},     /* TCSETS */
    {"ioctl", 1, LOW_32, 0x5403},     /* TCSETSW */
    {"ioctl", 1, LOW_32, 0x5404},     /* TCSETSF */
    {"ioctl", 1, LOW_32, 0x5409},     /* TCSBRK */
    {"ioctl", 1, LOW_32, 0x540a},     /* TCXONC */
    {"ioctl", 1, LOW_32, 0x540b},     /* TCFLSH */
    {"ioctl", 1, LOW_32, 0x540e},     /* TIOCSCTTY */
    {"ioctl", 1, LOW_32, 0x540f},     /* TIOCGPGRP */
    {"ioctl", 1, LOW_32, 0x5410},     /* TIOCSPGRP */
    {"ioctl", 1, LOW_32, 0x5411},     /* TIOCOUTQ */
    {"ioctl", 1, LOW_32, 0x5413},     /* TIOCGWINSZ */
    {"ioctl", 1, LOW_32, 0x5414},     /* TIOCSWINSZ */
    {"ioctl", 1, LOW_32, 0x541b},     /* FIONREAD */
    {"ioctl", 1, LOW_32, 0x5421},     /* FIONBIO */
    {"ioctl", 1, LOW_32, 0x5422},     /* TIOCNOTTY */
    {"ioctl", 1, LOW_32, 0x5429},     /* TIOCGSID */
    {"ioctl", 1, LOW_32, 0x5441},     /* TIOCGPTPEER */
    {"ioctl", 1, LOW_32, 0x5450},     /* FIONCLEX */
    {"ioctl", 1, LOW_32, 0x5451},     /* FIOCLEX */
    {"ioctl", 1, LOW_32, 0x5452},     /* FIOASYNC */
    {"ioctl", 1, LOW_32, 0x80045430}, /* TIOCGPTN */
    {"ioctl", 1, LOW_32, 0x40045431}, /* TIOCSPTLCK */
    {"ioctl", 1, LOW_32, 0x40049409}, /* FICLONE */
    {"ioctl", 1, LOW_32, 0x4020940d}, /* FICLONERANGE */
    {"ioctl", 1, LOW_32, 0x80086601}, /* FS_IOC_GETFLAGS */
};

static json_t *name_list(void)
{
    json_t *names = json_array();

    for (size_t i = 0; names && i < ARRAY_LEN(allowed); i++)
        if (json_array_append_new(names, json_string(allowed[i])) < 0) {
            json_decref(names);
            names = NULL;
        }
    return names;
}

/* A mask of all bits is written as equality: JSON as jansson reads it ends at 63 bits. */
static json_t *one_rule(const struct rule *r)
{
    json_t *argument =
        r->mask == ALL_64 ? json_pack("{s:i, s:I, s:s}", "index", r->index, "value", (json_int_t)r->value,
                                      "op", "SCMP_CMP_EQ")
                          : json_pack("{s:i, s:I, s:I, s:s}", "index", r->index, "value", (json_int_t)r->mask,
                                      "valueTwo", (json_int_t)r->value, "op", "SCMP_CMP_MASKED_EQ");

    return json_pack("{s:[s], s:s, s:[o]}", "names", r->name, "action", "SCMP_ACT_ALLOW", "args", argument);
}

/* The C library falls back to clone when clone3, whose flags a filter cannot see, does not exist. */
static json_t *no_clone3(void)
{
    return json_pack("{s:[s], s:s, s:i}", "names", "clone3", "action", "SCMP_ACT_ERRNO", "errnoRet", ENOSYS);
}

int seccomp_profile(enum seccomp_arch arch, json_t **ret, struct err *err)
{
    CLEANUP(json_free) json_t *calls = json_array();
    const char *name = arch == SECCOMP_X86_64 ? "SCMP_ARCH_X86_64" : "SCMP_ARCH_AARCH64";

    int failed = json_array_append_new(
        calls, json_pack("{s:o, s:s}", "names", name_list(), "action", "SCMP_ACT_ALLOW"));
    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        failed |= json_array_append_new(calls, one_rule(&rules[i]));
    failed |= json_array_append_new(calls, no_clone3());
    if (failed)
        return err_no_memory(err);
    json_t *profile = json_pack("{s:s, s:[s], s:O}", "defaultAction", "SCMP_ACT_ERRNO", "architectures", name,
                                "syscalls", calls);
    if (!profile)
        return err_no_memory(err);
    *ret = profile;
    return 0;
}
