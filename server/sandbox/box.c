#include "sandbox/box.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/proc.h"
#include "docker/attach.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define HOLD_MS         3000 /* until a process that exited at once is seen as exited */
#define POLL_MS         10
#define REMOVE_AGAIN_MS 250 /* a create whose outcome is unknown may land this much later */
#define DEATH_MS        1000
#define SIGNAL_MS       1000

const char *box_container_id(const struct box *box)
{
    return box->id;
}

void box_free(struct box *box)
{
    if (!box)
        return;
    close_fd(&box->attach);
    close_fd(&box->pidfd);
    ring_free(&box->errors);
    free(box);
}

/* A call's own bound, or what is left of the caller's. */
static struct engine_bound bound_call(const struct box_bound *bound, int own_ms)
{
    int left = bound ? clock_left_ms(bound->deadline_mono_ms) : own_ms;

    return (struct engine_bound){.timeout_ms = left < own_ms ? left : own_ms,
                                 .abort_fd = bound ? bound->abort_fd : -1};
}

/* An answer that was not waited for longer says nothing of the engine. Returns -1. */
static int judge_bound(const struct box_bound *bound, struct err *err)
{
    struct pollfd p = {.fd = bound ? bound->abort_fd : -1, .events = POLLIN};

    if (!bound || err->code != ERR_ENGINE_AWAY)
        return -1;
    if (poll(&p, 1, 0) > 0)
        err->code = ERR_CANCELED;
    else if (clock_left_ms(bound->deadline_mono_ms) == 0)
        err->code = ERR_TIMEOUT;
    return -1;
}

/* POST /containers/create. */
static int ask_create(struct box *box, const json_t *body, const struct box_bound *bound, struct err *err)
{
    const struct engine_bound call = bound_call(bound, BOX_CREATE_MS);
    CLEANUP(json_free) json_t *answer = NULL;
    CLEANUP(free_str) char *text = NULL;
    char path[128];
    int status;

    snprintf(path, sizeof path, "/containers/create?name=%s", box->name);
    int rc = engine_call_bound(box->sandbox->engine, "POST", path, body, &call, &status, &answer, err);
    if (rc < 0) {
        box->create_unknown = status == 0; /* no answer: it may be made, or yet be */
        if (status == 404)
            err->code = ERR_IMAGE;
        return judge_bound(bound, err);
    }
    const char *id = json_str(answer, "Id");
    if (!id || strlen(id) != BOX_ID_SIZE - 1 || strspn(id, "0123456789abcdef") != BOX_ID_SIZE - 1)
        return err_set(err, ERR_ENGINE, "the engine told no id for the container it made");
    memcpy(box->id, id, BOX_ID_SIZE);
    const json_t *warnings = json_object_get(answer, "Warnings");
    if (json_array_size(warnings) == 0)
        return 0;
    if (json_text(warnings, &text, err) < 0)
        return -1;
    return err_set(err, ERR_ENGINE, "the engine made the container with warnings: %.500s", text);
}

static void apply_caps(struct box_spec *spec, const struct box_caps *caps)
{
    if (caps->memory_mb)
        spec->memory_mb = caps->memory_mb;
    if (caps->pids)
        spec->pids = caps->pids;
    if (caps->cpus > 0)
        spec->cpus = caps->cpus;
}

static struct box *box_new(struct sandbox *s, const char *slot)
{
    struct box *box = calloc(1, sizeof *box);

    if (!box)
        return NULL;
    box->sandbox = s;
    box->attach = box->pidfd = -1;
    box->cpu_before_us = -1;
    box->errors.size = s->stderr_bytes;
    snprintf(box->name, sizeof box->name, BOX_NAME_PREFIX "%.*s", BOX_SLOT_HEX, slot);
    return box;
}

int box_adopt(struct sandbox *s, const char *slot, struct box **ret, struct err *err)
{
    if (!spec_is_slot(slot))
        return err_set(err, ERR_CONFIG, "a slot has 32 lower-case hex digits");
    *ret = box_new(s, slot);
    return *ret ? 0 : err_no_memory(err);
}

int box_make(struct sandbox *s, const char *image_id, const char *slot, const char *broker_dir,
             const char *workspace_dir, const struct box_caps *caps, const struct box_bound *bound,
             struct box **ret, json_t **body_ret, struct err *err)
{
    CLEANUP(json_free) json_t *body = NULL;
    struct box_spec spec = s->spec;
    int64_t before = clock_mono_ms();

    *ret = NULL;
    struct box *box = box_new(s, slot);
    if (!box)
        return err_no_memory(err);
    spec.name = box->name;
    spec.slot = slot;
    spec.image_id = image_id;
    spec.broker_dir = broker_dir;
    spec.workspace_dir = workspace_dir;
    if (caps)
        apply_caps(&spec, caps);
    if (spec_body(&spec, s->profile, &body, err) < 0) {
        box_free(box);
        return -1;
    }
    *ret = box; /* from here on something may exist */
    if (ask_create(box, body, bound, err) < 0)
        return err_wrap(err, "create %s", box->name);
    if (attach_open(s->engine, box->id, bound_call(bound, BOX_CALL_MS).timeout_ms, &box->attach, err) < 0) {
        judge_bound(bound, err);
        return err_wrap(err, "attach to %s", box->name);
    }
    box->made_ms = clock_mono_ms() - before;
    if (body_ret)
        *body_ret = json_steal(&body);
    return 0;
}

int box_create(struct sandbox *s, const char *slot, const char *broker_dir, const char *workspace_dir,
               const struct box_caps *caps, const struct box_bound *bound, struct box **ret, struct err *err)
{
    char image_id[BOX_IMAGE_ID];

    *ret = NULL;
    pthread_mutex_lock(&s->lock);
    memcpy(image_id, s->image_id, sizeof image_id);
    pthread_mutex_unlock(&s->lock);
    if (image_id[0] == '\0')
        return err_set(err, ERR_CONFIG, "the sandbox is not prepared");
    return box_make(s, image_id, slot, broker_dir, workspace_dir, caps, bound, ret, NULL, err);
}

int box_inspect(struct box *box, int timeout_ms, json_t **ret, struct err *err)
{
    char path[128];

    snprintf(path, sizeof path, "/containers/%s/json", box->id);
    return engine_call(box->sandbox->engine, "GET", path, NULL, timeout_ms, NULL, ret, err);
}

int box_state_get(struct box *box, int timeout_ms, struct box_state *ret, struct err *err)
{
    CLEANUP(json_free) json_t *inspect = NULL;

    if (box_inspect(box, timeout_ms, &inspect, err) < 0)
        return -1;
    const json_t *state = json_object_get(inspect, "State");
    if (!json_is_boolean(json_object_get(state, "Running")))
        return err_set(err, ERR_ENGINE, "inspect tells no state");
    ret->running = json_is_true(json_object_get(state, "Running"));
    ret->pid = (pid_t)json_integer_value(json_object_get(state, "Pid"));
    ret->exit_code = (int)json_integer_value(json_object_get(state, "ExitCode"));
    ret->oom_killed = json_is_true(json_object_get(state, "OOMKilled"));
    return 0;
}

/* One attempt: 1 held, 0 not now. The pid may be another's by the time it is opened, so the open process must
 * be in this container's cgroup (docker.md 8). */
static int try_hold(struct box *box, pid_t pid)
{
    struct err ignored;
    struct cgroup_usage usage;
    CLEANUP(close_fd) int fd = pid > 1 ? proc_pidfd(pid, &ignored) : -1;

    if (fd < 0 || !proc_in_cgroup(pid, box->id))
        return 0;
    cgroup_find(pid, &box->cgroup);
    cgroup_read(&box->cgroup, &usage);
    box->cpu_before_us = usage.cpu_us;
    box->pidfd = steal_fd(&fd);
    return 1;
}

static int hold_process(struct box *box, const struct box_bound *bound, struct err *err)
{
    int64_t deadline = clock_mono_ms() + bound_call(bound, HOLD_MS).timeout_ms;
    struct box_state state;

    for (;;) {
        if (box_state_get(box, bound_call(bound, BOX_CALL_MS).timeout_ms, &state, err) < 0)
            return judge_bound(bound, err);
        if (!state.running || try_hold(box, state.pid))
            return 0;
        if (bound && clock_left_ms(bound->deadline_mono_ms) == 0)
            return err_set(err, ERR_TIMEOUT, "process %d is not in the container yet", (int)state.pid);
        if (clock_left_ms(deadline) == 0)
            return err_set(err, ERR_ENGINE, "process %d is not in the container", (int)state.pid);
        clock_sleep_ms(POLL_MS);
    }
}

static int ask_start(struct box *box, const struct box_bound *bound, struct err *err)
{
    const struct engine_bound call = bound_call(bound, BOX_START_MS);
    char path[128];

    snprintf(path, sizeof path, "/containers/%s/start", box->id);
    if (engine_call_bound(box->sandbox->engine, "POST", path, NULL, &call, NULL, NULL, err) < 0)
        return judge_bound(bound, err);
    return 0;
}

int box_start(struct box *box, const struct box_bound *bound, struct err *err)
{
    int64_t before = clock_mono_ms();

    if (ask_start(box, bound, err) < 0 || hold_process(box, bound, err) < 0)
        return err_wrap(err, "start %s", box->name);
    box->made_ms += clock_mono_ms() - before;
    return 0;
}

bool box_process_ended(const struct box *box, int wait_ms)
{
    struct pollfd p = {.fd = box->pidfd, .events = POLLIN};

    return box->pidfd >= 0 && poll(&p, 1, wait_ms) > 0;
}

void box_signal(struct box *box, int sig)
{
    char path[128];
    struct err ignored;

    if (box->pidfd < 0 || proc_signal(box->pidfd, sig, &ignored) == 0)
        return;
    snprintf(path, sizeof path, "/containers/%s/kill?signal=%d", box->id, sig);
    if (engine_call(box->sandbox->engine, "POST", path, NULL, SIGNAL_MS, NULL, NULL, &ignored) < 0)
        return; /* box_remove proves death in any case */
}

int container_remove(struct engine *engine, const char *name, int64_t deadline, struct err *err)
{
    char path[160];
    int status;

    snprintf(path, sizeof path, "/containers/%s?force=1&v=1", name);
    for (int64_t pause = POLL_MS;; pause *= 2) {
        if (engine_call(engine, "DELETE", path, NULL, clock_left_ms(deadline), &status, NULL, err) == 0 ||
            status == 404)
            return 0;
        /* 409: a removal is under way. 500: something of it is still busy. Both pass by themselves. */
        if (status == 0 || clock_left_ms(deadline) <= pause)
            return -1;
        clock_sleep_ms(pause);
    }
}

int box_remove(struct box *box, struct err *err)
{
    int64_t deadline = clock_mono_ms() + LIMIT_REMOVE_TRY_MS;
    struct err ignored;

    if (box->removed)
        return 0;
    /* Where the kernel does not permit the signal, the engine kills as it removes: after the attach is
     * closed. */
    if (box->pidfd >= 0 && proc_signal(box->pidfd, SIGKILL, &ignored) < 0)
        ignored.code = ERR_NONE;
    close_fd(&box->attach);
    box->attach = -1;
    if (container_remove(box->sandbox->engine, box->name, deadline, err) < 0)
        return err_wrap(err, "remove %s", box->name);
    if (box->create_unknown) {
        clock_sleep_ms(REMOVE_AGAIN_MS);
        deadline = clock_mono_ms() + LIMIT_REMOVE_TRY_MS;
        if (container_remove(box->sandbox->engine, box->name, deadline, err) < 0)
            return err_wrap(err, "remove %s", box->name);
        box->create_unknown = false;
    }
    if (box->pidfd >= 0 && !box_process_ended(box, DEATH_MS))
        return err_set(err, ERR_ENGINE, "remove %s: the engine removed it, but its process lives", box->name);
    box->removed = true;
    return 0;
}
