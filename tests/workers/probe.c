/* workers/probe.c: calls every system call with arguments that can do no harm, each in a child of its own,
 * and tells the answer: "ok", "errno N", "signal N", or "blocked" when it waits (and so was let through). */
#include "hostile.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LAST_CALL 600
#define WAIT_MS   100

static volatile long *shared; /* [0]: returned; [1]: errno */

struct attempt {
    const char *name;
    void (*run)(const struct attempt *);
    long nr, a[3];
};

static void plain(const struct attempt *t)
{
    long n = syscall(t->nr, t->a[0], t->a[1], t->a[2], -1L, -1L, -1L);

    shared[1] = n < 0 ? errno : 0;
    shared[0] = 1;
}

#ifdef __x86_64__
static void call_i386(const struct attempt *t)
{
    long n;

    __asm__ volatile("int $0x80"
                     : "=a"(n)
                     : "a"(t->nr), "b"(0), "c"(0), "d"(0)
                     : "memory", "r8", "r9", "r10", "r11");
    shared[1] = n < 0 ? -n : 0;
    shared[0] = 1;
}
#endif

static void wait_shortly(pid_t pid, int *status)
{
    struct timespec tick = {0, 1000000};

    for (int i = 0; i < WAIT_MS; i++) {
        if (waitpid(pid, status, WNOHANG) == pid)
            return;
        nanosleep(&tick, NULL);
    }
    kill(pid, SIGKILL);
    waitpid(pid, status, 0);
    *status = -1;
}

static json_t *outcome(const struct attempt *t)
{
    int status = 0;

    shared[0] = shared[1] = 0;
    pid_t pid = fork();
    if (pid < 0)
        return json_string("no process");
    if (pid == 0) {
        t->run(t);
        _exit(0);
    }
    wait_shortly(pid, &status);
    while (waitpid(-1, NULL, WNOHANG) > 0) /* what fork and its kin have left behind */
        ;
    if (status == -1)
        return json_string("blocked");
    if (WIFSIGNALED(status))
        return json_sprintf("signal %d", WTERMSIG(status));
    return shared[0] && shared[1] ? json_sprintf("errno %ld", shared[1]) : json_string("ok");
}

/* Arguments that the profile looks at. */
static const struct attempt special[] = {
    {"socket unix", plain, SYS_socket, {AF_UNIX, SOCK_STREAM, 0}},
    {"socket inet", plain, SYS_socket, {AF_INET, SOCK_STREAM, 0}},
    {"socket inet6", plain, SYS_socket, {AF_INET6, SOCK_DGRAM, 0}},
    {"socket netlink", plain, SYS_socket, {AF_NETLINK, SOCK_RAW, 0}},
    {"socket packet", plain, SYS_socket, {AF_PACKET, SOCK_RAW, 0}},
    {"socket vsock", plain, SYS_socket, {AF_VSOCK, SOCK_STREAM, 0}},
    {"socket alg", plain, SYS_socket, {AF_ALG, SOCK_SEQPACKET, 0}},
    {"clone newuser", plain, SYS_clone, {CLONE_NEWUSER | SIGCHLD, 0, 0}},
    {"clone newnet", plain, SYS_clone, {CLONE_NEWNET | SIGCHLD, 0, 0}},
    {"clone newns", plain, SYS_clone, {CLONE_NEWNS | SIGCHLD, 0, 0}},
    {"clone newcgroup", plain, SYS_clone, {CLONE_NEWCGROUP | SIGCHLD, 0, 0}},
    {"clone plain", plain, SYS_clone, {SIGCHLD, 0, 0}},
    {"unshare user", plain, SYS_unshare, {CLONE_NEWUSER, 0, 0}},
    {"prctl name", plain, SYS_prctl, {PR_SET_NAME, (long)"probe", 0}},
    {"prctl seccomp", plain, SYS_prctl, {PR_SET_SECCOMP, 1, 0}},
    {"prctl mm", plain, SYS_prctl, {PR_SET_MM, 1, 0}},
    {"prctl ptracer", plain, SYS_prctl, {PR_SET_PTRACER, -1, 0}},
    {"ioctl isatty", plain, SYS_ioctl, {0, TCGETS, 0}},
    {"ioctl sti", plain, SYS_ioctl, {0, TIOCSTI, (long)"x"}},
    {"ioctl sti alias", plain, SYS_ioctl, {0, (long)(0x100000000 | TIOCSTI), (long)"x"}},
    {"ioctl linux", plain, SYS_ioctl, {0, TIOCLINUX, (long)"x"}},
    {"personality query", plain, SYS_personality, {0xffffffff, 0, 0}},
    {"personality linux32", plain, SYS_personality, {8, 0, 0}},
    {"personality no randomize", plain, SYS_personality, {0x40000, 0, 0}},
    {"clone3", plain, SYS_clone3, {0, 0, 0}},
#ifdef __x86_64__
    {"i386 getpid", call_i386, 20, {0, 0, 0}},
    {"x32 getpid", plain, 0x40000000 + SYS_getpid, {0, 0, 0}},
    {"x32 unshare", plain, 0x40000000 + SYS_unshare, {CLONE_NEWUSER, 0, 0}},
#endif
};

json_t *probe_calls(void)
{
    json_t *calls = json_object(), *arguments = json_object();

    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return NULL;
    for (long nr = 0; nr <= LAST_CALL; nr++) {
        const struct attempt t = {"", plain, nr, {-1, -1, -1}};
        char key[16];
        snprintf(key, sizeof key, "%ld", nr);
        json_object_set_new(calls, key, outcome(&t));
    }
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++)
        json_object_set_new(arguments, special[i].name, outcome(&special[i]));
    return json_pack("{s:o, s:o}", "calls", calls, "arguments", arguments);
}
