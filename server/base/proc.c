#include "base/proc.h"

#include "base/clock.h"
#include "base/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

int proc_pidfd(pid_t pid, struct err *err)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);

    return fd < 0 ? err_errno(err, errno, "pidfd of %d", (int)pid) : fd;
}

int proc_signal(int pidfd, int sig, struct err *err)
{
    if (syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0) < 0 && errno != ESRCH)
        return err_errno(err, errno, "signal %d", sig);
    return 0;
}

/* Reads until EOF; the deadline and cancel_fd are the only ways this ends early. */
static int drain(int fd, int64_t deadline, int cancel_fd, struct buf *out, struct err *err)
{
    for (;;) {
        char chunk[4096];
        struct pollfd p[] = {{.fd = fd, .events = POLLIN}, {.fd = cancel_fd, .events = POLLIN}};
        int ready = poll(p, 2, clock_left_ms(deadline));
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready < 0)
            return err_errno(err, errno, "poll");
        if (ready == 0)
            return err_set(err, ERR_TIMEOUT, "it did not finish in time");
        if (p[1].revents)
            return err_set(err, ERR_CANCELED, "it is not wanted any more");
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n < 0)
            return err_errno(err, errno, "read");
        if (n == 0)
            return 0;
        if (buf_add(out, chunk, (size_t)n, err) < 0)
            return -1;
    }
}

static void exec_child(char *const argv[], int out)
{
    char *const env[] = {(char[]){"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
                         (char[]){"HOME=/"}, NULL};
    sigset_t none;
    int null = open("/dev/null", O_RDWR);

    setsid();
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL); /* what is ignored stays ignored over exec */
    if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(null, 2) < 0)
        _exit(126);
    execve(argv[0], argv, env);
    _exit(127);
}

/* A program may close its output and go on: its exit is waited for as well. */
static int await_exit(pid_t pid, int64_t deadline, int cancel_fd, struct err *err)
{
    CLEANUP(close_fd) int pidfd = proc_pidfd(pid, err);

    if (pidfd < 0)
        return -1;
    for (;;) {
        struct pollfd p[] = {{.fd = pidfd, .events = POLLIN}, {.fd = cancel_fd, .events = POLLIN}};
        int ready = poll(p, 2, clock_left_ms(deadline));
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready < 0)
            return err_errno(err, errno, "poll");
        if (p[0].revents)
            return 0;
        if (ready == 0)
            return err_set(err, ERR_TIMEOUT, "it did not finish in time");
        return err_set(err, ERR_CANCELED, "it is not wanted any more");
    }
}

/* Takes the exit status. What is still there after a failure is killed first: until then the zombie keeps the
 * group's number from being used again. */
static int reap(pid_t pid, bool kill_first)
{
    int status = 0;

    if (kill_first && kill(-pid, SIGKILL) < 0)
        kill(pid, SIGKILL); /* it has not come to setsid yet */
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

int proc_run(char *const argv[], int timeout_ms, struct buf *out, struct err *err)
{
    return proc_run_cancel(argv, timeout_ms, -1, out, err);
}

int proc_run_cancel(char *const argv[], int timeout_ms, int cancel_fd, struct buf *out, struct err *err)
{
    int pipe_fds[2];
    int64_t deadline = clock_mono_ms() + timeout_ms;

    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return err_errno(err, errno, "pipe");
    pid_t pid = fork();
    if (pid == 0)
        exec_child(argv, pipe_fds[1]);
    int failed = errno;
    close(pipe_fds[1]);
    if (pid < 0) {
        close(pipe_fds[0]);
        return err_errno(err, failed, "fork");
    }
    int rc = drain(pipe_fds[0], deadline, cancel_fd, out, err);
    close(pipe_fds[0]);
    if (rc == 0)
        rc = await_exit(pid, deadline, cancel_fd, err);
    int status = reap(pid, rc < 0);
    if (rc < 0)
        return err_wrap(err, "%s", argv[0]);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return err_set(err, ERR_SYSTEM, "%s ended with status %d", argv[0],
                       WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return 0;
}

static ssize_t read_proc(pid_t pid, const char *what, char *out, size_t size)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, what);
    CLEANUP(close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    size_t len = 0;
    while (len < size - 1) {
        ssize_t n = read(fd, out + len, size - 1 - len);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    out[len] = '\0';
    return (ssize_t)len;
}

uint64_t proc_start_time(pid_t pid)
{
    char stat[1024];

    if (read_proc(pid, "stat", stat, sizeof stat) <= 0)
        return 0;
    char *p = strrchr(stat, ')'); /* the name before it may hold anything */
    for (int field = 2; p && field < 22; field++) {
        p = strchr(p, ' ');
        if (p)
            p++;
    }
    return p ? strtoull(p, NULL, 10) : 0;
}

bool proc_in_cgroup(pid_t pid, const char *id)
{
    char text[8192];

    return id[0] && read_proc(pid, "cgroup", text, sizeof text) > 0 && strstr(text, id) != NULL;
}

uint64_t proc_epoll_watches(void)
{
    FILE *file = fopen("/proc/sys/fs/epoll/max_user_watches", "re");
    uint64_t n = 0;

    if (!file)
        return 0;
    if (fscanf(file, "%" SCNu64, &n) != 1)
        n = 0;
    fclose(file);
    return n;
}

void proc_raise_nofile(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit); /* http adapts to what there is */
    }
}

int proc_seal_self(struct err *err)
{
    struct rlimit none = {0, 0};
    struct sigaction ignore = {.sa_handler = SIG_IGN};

    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        setrlimit(RLIMIT_CORE, &none) < 0 || sigaction(SIGPIPE, &ignore, NULL) < 0)
        return err_errno(err, errno, "seal the process");
    /* clearenv only forgets the strings: they would stay readable in /proc/PID/environ. */
    for (char **variable = environ; variable && *variable; variable++)
        secret_wipe(*variable, strlen(*variable));
    clearenv();
    return 0;
}
