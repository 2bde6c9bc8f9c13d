/* One turn, top to bottom: start → slot → run → end → proven death. */
#include "pool/run.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/utf8.h"
#include "schemas/protocol.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#define LAST_WORDS_MS 500 /* for what a worker that ends badly had written and is under way */

static int start_job(struct store *st, void *arg, struct err *err)
{
    struct run *r = arg;

    turn_free(STEAL(r->turn)); /* of an earlier attempt */
    if (turns_start(st, r->item->turn_id, r->slot->id, r->pool->deps.boot, clock_wall_ms(), &r->reset,
                    &r->reset_seen, err) < 0)
        return -1;
    return turns_get(st, r->item->turn_id, &r->turn, err);
}

static enum ending ending_of_failure(const struct run *r, const char *where, const struct err *err)
{
    log_line(LOG_ERROR, r->item->turn_id, "%s: %s", where, err->text);
    switch (err->code) {
    case ERR_ENGINE_AWAY:
        watch_engine_failed(r->pool, err);
        return END_ENGINE_UNAVAILABLE;
    case ERR_IMAGE:
        watch_engine_failed(r->pool, err);
        return END_IMAGE_MISSING;
    case ERR_ENGINE: /* it would refuse, or weaken, the next container too: the others wait (mission.md 2) */
        watch_engine_failed(r->pool, err);
        return END_ENGINE_ERROR;
    case ERR_DISK_FULL: /* no room for the folders of a turn: bytes, inodes, quota */
        return END_DISK_FULL;
    case ERR_TIMEOUT:
        return END_TIMEOUT;
    case ERR_CANCELED:
        return END_CANCELED;
    case ERR_CONFLICT:
        return END_WORKSPACE_VIOLATION;
    default:
        return END_ENGINE_ERROR;
    }
}

/* The request's own limits, which the handler has held against the operator's. */
static json_int_t limit_of(const struct turn *t, const char *name)
{
    return json_integer_value(json_object_get(json_object_get(t->request, "limits"), name));
}

static struct box_caps caps_of(const struct turn *t)
{
    return (struct box_caps){
        .memory_mb = (unsigned)limit_of(t, "memory_mb"),
        .pids = (unsigned)limit_of(t, "pids"),
        .cpus = json_number_value(json_object_get(json_object_get(t->request, "limits"), "cpus")),
    };
}

/* The container, made with the channel's workspace and running, its broker bound. An engine that is slow to
 * make it does not keep the turn beyond its time. (mission.md 1) */
static int open_box(struct run *r, const char *workspace, int64_t deadline, struct err *err)
{
    struct slot *slot = r->slot;
    struct broker_turn bind = {.turn_id = r->turn->id,
                               .deadline = deadline,
                               .traceparent = r->turn->traceparent,
                               .on_call = run_on_call,
                               .arg = r};

    struct box_caps caps = caps_of(r->turn);
    struct box_bound bound = {.deadline_mono_ms = deadline + r->pool->deps.config->limits.grace_ms,
                              .abort_fd = r->active.abort_fd};
    if (box_create(r->pool->deps.sandbox, slot->id, slot->broker_dir, workspace, &caps, &bound, &slot->box,
                   err) < 0)
        return -1;
    bind.container_id = box_container_id(slot->box);
    if (broker_bind(slot->broker, &bind, err) < 0)
        return -1;
    return box_start(slot->box, &bound, err);
}

static int make_line(const struct run *r, char **ret, struct err *err)
{
    const struct config *c = r->pool->deps.config;
    struct worker_turn line = {.id = r->turn->id,
                               .request = r->turn->request,
                               .model = c->model.name,
                               .prompt = c->model.prompt,
                               .time_zone = c->model.time_zone,
                               .reset = r->reset,
                               .deadline_ms = r->timeout_ms};

    return worker_turn_line(&line, ret, err);
}

/* Runs the turn in its slot; the ending says how it went. */
static enum ending execute(struct run *r)
{
    const struct config *c = r->pool->deps.config;
    int64_t deadline = r->started + r->timeout_ms;
    struct box_run_limits limits = {.deadline_mono_ms = deadline,
                                    .grace_ms = c->limits.grace_ms,
                                    .abort_fd = r->active.abort_fd,
                                    .max_stdout = LIMIT_STDOUT,
                                    .on_stderr = c->result.logs ? run_on_stderr : NULL,
                                    .arg = r};
    CLEANUP(free_str) char *workspace = NULL;
    CLEANUP(free_str) char *line = NULL;
    struct err err;

    if (slot_workspace(r->pool, r->item->channel, &workspace, &err) < 0)
        return ending_of_failure(r, "workspace", &err);
    if (slot_open(r->pool, r->slot, &err) < 0)
        return ending_of_failure(r, "slot", &err);
    if (make_line(r, &line, &err) < 0)
        return ending_of_failure(r, "turn", &err);
    if (open_box(r, workspace, deadline, &err) < 0)
        return ending_of_failure(r, "container", &err);
    r->opened_ms = clock_wall_ms();
    if (box_run(r->slot->box, line, strlen(line), &limits, &r->result, &err) < 0)
        return ending_of_failure(r, "run", &err);
    r->late = clock_left_ms(deadline) == 0;
    r->ended_ms = clock_wall_ms();
    return END_NONE;
}

/* queued → running. Where the channel was turned off or deleted meanwhile the turn ends as canceled; where it
 * has ended already nothing is left to do. False: it does not run. */
static bool start_turn(struct run *r)
{
    struct pool *pool = r->pool;
    struct err err;

    while (db_write(pool->deps.db, start_job, r, &err) < 0) {
        if (err.code == ERR_CHANNEL_DISABLED) {
            run_end_unstarted(r, END_CHANNEL_DISABLED);
            return false;
        }
        if (err.code == ERR_CONFLICT || err.code == ERR_NOT_FOUND)
            return false;
        log_line(LOG_ERROR, r->item->turn_id, "the start is not written yet: %s", err.text);
        if (!run_may_retry(pool))
            return false;
    }
    bus_publish(pool->deps.bus, r->turn->id);
    r->started = clock_mono_ms();
    run_span(r, "accept", r->turn->created_ms - r->turn->accept_ms, r->turn->accept_ms);
    run_span(r, "queue", r->turn->created_ms, r->turn->started_ms - r->turn->created_ms);
    r->timeout_ms = limit_of(r->turn, "timeout_ms") ? (int)limit_of(r->turn, "timeout_ms")
                                                    : pool->deps.config->limits.timeout_ms;
    return true;
}

static int make_run(struct run *r, struct pool *pool, const struct queue_item *item, struct err *err)
{
    *r = (struct run){.pool = pool, .item = item, .reset_seen = -1};
    r->result = (struct box_result){.end = BOX_ENGINE_LOST, .cpu_us = -1, .memory_peak = -1, .exit_code = -1};
    r->active = (struct active){.channel = item->channel, .disk_bytes = -1};
    memcpy(r->active.turn_id, item->turn_id, sizeof r->active.turn_id);
    r->active.abort_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (r->active.abort_fd < 0)
        return err_errno(err, errno, "eventfd");
    if (slot_new(pool, item, &r->slot, err) < 0)
        return -1;
    memcpy(r->active.slot, r->slot->id, sizeof r->active.slot);
    return 0;
}

/* Where the turn ended badly and its worker may have written more than was read. */
static bool has_last_words(const struct run *r)
{
    return r->pool->deps.config->result.logs && r->ending != END_NONE && r->slot->box &&
           r->result.end != BOX_ENGINE_LOST && r->result.end != BOX_EXITED;
}

static void run_and_commit(struct run *r)
{
    struct err err;

    r->ending = execute(r);
    if (r->slot->broker) {
        broker_close(r->slot->broker);
        broker_stats(r->slot->broker, &r->stats);
    }
    enum ending asked = active_settle(r->pool, &r->active);
    if (r->ending == END_NONE)
        r->ending = ending_of(&r->result, &r->stats, asked, r->late, &r->reply);
    else if (r->ending == END_CANCELED && asked != END_NONE) /* before its container was up */
        r->ending = asked;
    if (has_last_words(r) && box_last_words(r->slot->box, LAST_WORDS_MS, &r->result, &err) < 0)
        log_line(LOG_WARN, r->item->turn_id, "stderr: %s", err.text);
    run_report(r);
}

void turn_run(struct pool *pool, const struct queue_item *item)
{
    struct run r;
    struct err err;

    while (make_run(&r, pool, item, &err) < 0) {
        close_fd(&r.active.abort_fd);
        log_line(LOG_ERROR, item->turn_id, "the turn cannot start yet: %s", err.text);
        if (!run_may_retry(pool))
            return;
    }
    if (active_add(pool, &r.active)) {
        if (start_turn(&r))
            run_and_commit(&r);
        active_remove(pool, &r.active);
    }
    slot_dispose(pool, r.slot);
    close_fd(&r.active.abort_fd);
    box_result_free(&r.result);
    buf_free(&r.said);
    json_decref(r.spans);
    json_decref(r.reply);
    turn_free(r.turn);
}
