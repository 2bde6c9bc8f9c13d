#include "world.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/limits.h"

#include <criterion/criterion.h>
#include <criterion/hooks.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <libgen.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define ACCOUNT 61234

/* The images come first, once: a set-up that fails is a failure, never a skip. */
ReportHook(PRE_ALL)(struct criterion_test_set *set)
{
    char self[512], hostile[1024], script[1024];
    int status = 1;

    (void)set;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    snprintf(hostile, sizeof hostile, "%s/../workers/hostile", dirname(self));
    snprintf(script, sizeof script, "%.*s/../../workers/images", (int)(strrchr(__FILE__, '/') - __FILE__),
             __FILE__);
    pid_t pid = fork();
    if (pid == 0) {
        execl(script, script, hostile, (char *)NULL);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0) {
        fprintf(stderr, "%s %s failed: is there an engine at DOCKER_HOST?\n", script, hostile);
        _exit(1);
    }
}

static void become_account(const char *socket)
{
    struct stat st;

    if (geteuid() != 0)
        return;
    cr_assert_eq(stat(socket, &st), 0, "no engine socket at %s", socket);
    cr_assert_eq(setgroups(1, &st.st_gid), 0);
    cr_assert_eq(setresgid(ACCOUNT, ACCOUNT, ACCOUNT), 0);
    cr_assert_eq(setresuid(ACCOUNT, ACCOUNT, ACCOUNT), 0);
}

void world_open(struct world *w, const char *mode)
{
    static char image[96];
    const char *host = getenv("DOCKER_HOST");
    struct err err;

    *w = (struct world){.abort_fd = -1};
    snprintf(w->socket, sizeof w->socket, "%s",
             host && strncmp(host, "unix://", 7) == 0 ? host + 7 : "/var/run/docker.sock");
    become_account(w->socket);
    strcpy(w->dir, "/tmp/cloister-unit-XXXXXX");
    cr_assert(mkdtemp(w->dir));
    snprintf(w->broker, sizeof w->broker, "%s/broker", w->dir);
    snprintf(w->work, sizeof w->work, "%s/work", w->dir);
    cr_assert_eq(mkdir(w->broker, 0700), 0);
    cr_assert_eq(mkdir(w->work, 0700), 0);
    strcpy(w->installation, "unit-");
    id_hex(w->installation + 5, 8);
    snprintf(image, sizeof image, "cloister-test-%s:local", mode);
    w->config = (struct sandbox_config){.engine_socket = w->socket,
                                        .image = image,
                                        .installation = w->installation,
                                        .boot = "boot-1",
                                        .uid = geteuid(),
                                        .gid = getegid(),
                                        .memory_mb = 64,
                                        .cpus = 1.0,
                                        .pids = 16,
                                        .nofile = 256,
                                        .tmp_mb = 64,
                                        .stderr_bytes = 1024 * 1024};
    cr_assert_eq(sandbox_new(&w->config, &w->sandbox, &err), 0, "%s", err.text);
    w->abort_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    cr_assert_geq(w->abort_fd, 0);
}

void world_prepare(struct world *w)
{
    struct err err;

    cr_assert_eq(sandbox_prepare(w->sandbox, w->broker, w->work, &err), 0, "%s", err.text);
}

static bool keep_none(const char *slot, const char *boot, void *arg)
{
    (void)slot, (void)boot, (void)arg;
    return false;
}

void world_close(struct world *w)
{
    struct err err;
    struct sandbox_swept swept;

    cr_expect_eq(sandbox_sweep(w->sandbox, keep_none, NULL, &swept, &err), 0, "%s", err.text);
    cr_expect_eq(swept.removed + swept.left, 0, "%u containers were left", swept.removed + swept.left);
    sandbox_free(w->sandbox);
    close(w->abort_fd);
    int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_expect_eq(fs_remove_tree(tmp, strrchr(w->dir, '/') + 1, &err), 0, "%s", err.text);
    close(tmp);
}

struct times world_run(struct world *w, const char *input, size_t len, int deadline_ms, int grace_ms,
                       struct box_result *ret)
{
    char slot[ID_HEX_128];
    struct box *box = NULL;
    struct err err;
    struct times t;
    int64_t zero = clock_mono_ms();

    id_hex(slot, 16);
    cr_assert_eq(box_create(w->sandbox, slot, w->broker, w->work, NULL, NULL, &box, &err), 0, "%s", err.text);
    t.create = clock_mono_ms() - zero;
    cr_assert_eq(box_start(box, NULL, &err), 0, "%s", err.text);
    t.start = clock_mono_ms() - zero;
    struct box_run_limits limits = {.deadline_mono_ms = clock_mono_ms() + deadline_ms,
                                    .grace_ms = grace_ms,
                                    .abort_fd = w->abort_fd,
                                    .max_stdout = LIMIT_STDOUT};
    cr_assert_eq(box_run(box, input, len, &limits, ret, &err), 0, "%s", err.text);
    t.end = clock_mono_ms() - zero;
    cr_assert_eq(box_remove(box, &err), 0, "%s", err.text);
    cr_assert_eq(box_remove(box, &err), 0, "removing again");
    t.removed = clock_mono_ms() - zero;
    box_free(box);
    fprintf(stderr,
            "%-32s end %d  create %3d start %3d end %4d removed %4d ms  exit %3d sig %2d oom %d/%u pids %u "
            "cpu %" PRId64 " us peak %" PRId64 " out %" PRIu64 " err %" PRIu64 "\n",
            w->config.image, ret->end, (int)t.create, (int)t.start, (int)t.end, (int)t.removed,
            ret->exit_code, ret->signal, ret->oom, ret->oom_kills, ret->pids_hits, ret->cpu_us,
            ret->memory_peak, ret->out_total, ret->err_total);
    return t;
}

struct alarm {
    int fd, ms;
};

static void *ring_later(void *arg)
{
    struct alarm *a = arg;
    uint64_t one = 1;

    clock_sleep_ms(a->ms);
    if (write(a->fd, &one, sizeof one) != sizeof one)
        abort();
    free(a);
    return NULL;
}

void world_abort_after(struct world *w, int ms)
{
    struct alarm *a = malloc(sizeof *a);
    pthread_t thread;

    *a = (struct alarm){.fd = w->abort_fd, .ms = ms};
    cr_assert_eq(pthread_create(&thread, NULL, ring_later, a), 0);
    pthread_detach(thread);
}
