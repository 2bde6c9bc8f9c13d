#include "base/clock.h"
#include "base/proc.h"

#include "../scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static char **sh(const char *script)
{
    static char text[256], own[16];
    static char *argv[] = {"/bin/sh", "-c", text, NULL};

    /* The time of each sleep ends in our pid, so that another run of this test is not taken for ours. */
    snprintf(own, sizeof own, "4711.%d", (int)getpid());
    snprintf(text, sizeof text, "T=%s; %s", own, script);
    return argv;
}

/* How many processes of /proc have this word in their command line. */
static unsigned count_running(const char *word)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    unsigned found = 0;

    cr_assert_not_null(dir);
    while ((entry = readdir(dir))) {
        char path[300], line[512] = "";
        snprintf(path, sizeof path, "/proc/%s/cmdline", entry->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? 0 : read(fd, line, sizeof line - 1);
        for (ssize_t i = 0; i < n; i++)
            if (line[i] == '\0')
                line[i] = ' ';
        found += strstr(line, word) != NULL;
        close_fd(&fd);
    }
    closedir(dir);
    return found;
}

/* No sleep of a script of ours is left. */
static void assert_gone(void)
{
    char word[32];
    int64_t deadline = clock_mono_ms() + 5000;

    snprintf(word, sizeof word, "4711.%d", (int)getpid());

    while (count_running(word) > 0 && clock_mono_ms() < deadline)
        clock_sleep_ms(10);
    cr_assert_eq(count_running(word), 0, "%s still runs", word);
}

Test(proc_run, gives_the_output_and_a_minimal_environment)
{
    struct buf out = BUF_INIT(4096);
    struct err err = {0};

    setenv("CLOISTER_TEST_SECRET", "x", 1);
    cr_assert_eq(proc_run(sh("env; cat; echo lost >&2"), 10000, &out, &err), 0, "%s", err.text);
    cr_assert(strstr(out.data, "HOME=/\n") && strstr(out.data, "PATH="), "%s", out.data);
    cr_assert_not(strstr(out.data, "SECRET"), "%s", out.data);
    cr_assert_not(strstr(out.data, "lost"), "%s", out.data);
    buf_free(&out);
}

Test(proc_run, tells_the_exit_code_or_signal)
{
    struct buf out = BUF_INIT(4096);
    struct err err = {0};

    cr_assert_eq(proc_run(sh("exit 3"), 10000, &out, &err), -1);
    cr_assert_eq(err.code, ERR_SYSTEM);
    cr_assert(strstr(err.text, "status 3"), "%s", err.text);
    cr_assert_eq(proc_run(sh("kill -9 $$"), 10000, &out, &err), -1);
    cr_assert(strstr(err.text, "status 137"), "%s", err.text);
    char *const missing[] = {"/nonexistent/program", NULL};
    cr_assert_eq(proc_run(missing, 10000, &out, &err), -1);
    cr_assert(strstr(err.text, "status 127"), "%s", err.text);
    buf_free(&out);
}

Test(proc_run, output_is_bounded)
{
    struct buf out = BUF_INIT(1000);
    struct err err = {0};

    cr_assert_eq(proc_run(sh("while :; do echo 0123456789; done"), 10000, &out, &err), -1);
    cr_assert_eq(err.code, ERR_TOO_LARGE, "%s", err.text);
    cr_assert_leq(out.len, 1000);
    assert_gone();
    buf_free(&out);
}

Test(proc_run, the_deadline_kills_the_session)
{
    struct buf out = BUF_INIT(1000);
    struct err err = {0};
    int64_t before = clock_mono_ms();

    cr_assert_eq(proc_run(sh("sleep $T & sleep $T"), 300, &out, &err), -1);
    cr_assert_eq(err.code, ERR_TIMEOUT, "%s", err.text);
    cr_assert_lt(clock_mono_ms() - before, 5000);
    assert_gone();
    buf_free(&out);
}

Test(proc_run, the_deadline_kills_what_a_program_that_ended_left_behind)
{
    struct buf out = BUF_INIT(1000);
    struct err err = {0};

    cr_assert_eq(proc_run(sh("sleep $T & exit 0"), 300, &out, &err), -1);
    cr_assert_eq(err.code, ERR_TIMEOUT, "%s", err.text);
    assert_gone();
    buf_free(&out);
}

Test(proc_run, the_deadline_holds_for_a_program_that_closed_its_output)
{
    struct buf out = BUF_INIT(1000);
    struct err err = {0};
    int64_t before = clock_mono_ms();

    cr_assert_eq(proc_run(sh("exec >&- 2>&-; sleep $T"), 300, &out, &err), -1);
    cr_assert_eq(err.code, ERR_TIMEOUT, "%s", err.text);
    cr_assert_lt(clock_mono_ms() - before, 5000);
    assert_gone();
    buf_free(&out);
}

Test(proc_run, cancel_ends_it_at_once)
{
    struct buf out = BUF_INIT(1000);
    struct err err = {0};
    int fd = eventfd(1, EFD_CLOEXEC);
    int64_t before = clock_mono_ms();

    cr_assert_eq(proc_run_cancel(sh("sleep $T"), 60000, fd, &out, &err), -1);
    cr_assert_eq(err.code, ERR_CANCELED, "%s", err.text);
    cr_assert_eq(proc_run_cancel(sh("exec >&-; sleep $T"), 60000, fd, &out, &err), -1);
    cr_assert_eq(err.code, ERR_CANCELED, "%s", err.text);
    cr_assert_lt(clock_mono_ms() - before, 5000);
    assert_gone();
    close(fd);
    buf_free(&out);
}

Test(proc_run, leaves_no_child_and_no_descriptor)
{
    struct buf out = BUF_INIT(1000);
    struct err err = {0};
    int fd_before = dup(0);

    close(fd_before);
    for (int i = 0; i < 20; i++) {
        cr_assert_eq(proc_run(sh("echo x"), 10000, &out, &err), 0, "%s", err.text);
        (void)!proc_run(sh("exit 1"), 10000, &out, &err);
        (void)!proc_run(sh("sleep $T"), 1, &out, &err);
    }
    int fd_after = dup(0);
    cr_assert_eq(fd_after, fd_before);
    close(fd_after);
    cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1);
    cr_assert_eq(errno, ECHILD);
    buf_free(&out);
}

Test(proc_run, gives_the_default_of_broken_pipes_back)
{
    struct buf out = BUF_INIT(1000);
    struct err err = {0};

    signal(SIGPIPE, SIG_IGN);
    cr_assert_eq(proc_run(sh("grep SigIgn /proc/self/status"), 10000, &out, &err), 0, "%s", err.text);
    cr_assert_eq(strtoull(out.data + strlen("SigIgn:\t"), NULL, 16) >> (SIGPIPE - 1) & 1, 0, "%s", out.data);
    buf_free(&out);
}

Test(proc, start_time_tells_a_life_from_another)
{
    uint64_t own = proc_start_time(getpid());
    struct err err;

    cr_assert_gt(own, 0);
    cr_assert_eq(own, proc_start_time(getpid()));
    prctl(PR_SET_NAME, "a) b (1 2 3", 0, 0, 0);
    cr_assert_eq(own, proc_start_time(getpid()), "the name does not mislead");
    pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    cr_assert_geq(proc_start_time(pid), own);
    int pidfd = proc_pidfd(pid, &err);
    cr_assert_geq(pidfd, 0, "%s", err.text);
    cr_assert(fcntl(pidfd, F_GETFD) & FD_CLOEXEC);
    cr_assert_eq(proc_signal(pidfd, SIGKILL, &err), 0);
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
    cr_assert_eq(proc_signal(pidfd, SIGKILL, &err), 0, "gone already is fine");
    cr_assert_eq(proc_start_time(pid), 0);
    close(pidfd);
    cr_assert_eq(proc_pidfd(pid, &err), -1);
}

Test(proc, cgroup_needs_a_name)
{
    cr_assert_not(proc_in_cgroup(getpid(), ""));
    cr_assert_not(proc_in_cgroup(getpid(), "0123456789abcdef-not-there"));
    cr_assert(proc_in_cgroup(getpid(), "::") || proc_in_cgroup(getpid(), ":"));
}

static int sealed(void *arg)
{
    struct err err;
    struct rlimit core;
    struct sigaction pipe_action;

    (void)arg;
    setenv("CLOISTER_SECRET", "x", 1);
    if (proc_seal_self(&err) < 0)
        return 1;
    if (prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
        return 2;
    if (getrlimit(RLIMIT_CORE, &core) < 0 || core.rlim_cur != 0 || core.rlim_max != 0)
        return 3;
    if (sigaction(SIGPIPE, NULL, &pipe_action) < 0 || pipe_action.sa_handler != SIG_IGN)
        return 4;
    return getenv("CLOISTER_SECRET") || getenv("PATH") ? 5 : 0;
}

Test(proc, seals_itself)
{
    cr_assert_eq(scratch_as_guest(sealed, NULL), 0);
}
