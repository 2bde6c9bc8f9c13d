/* One turn, top to bottom: start → slot → run → end → proven death. */
#include "pool/internal.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/utf8.h"
#include "schemas/protocol.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#define LAST_WORDS_MS 500 /* for the stderr of a worker that says it failed */

struct run {
    struct pool *pool;
    const struct queue_item *item;
    struct turn *turn;
    struct slot *slot;
    struct active active;
    bool reset;
    int64_t reset_seen;
    int64_t started; /* monotonic */
    struct box_result result;
    bool late; /* the result came at the deadline or after it */
    struct broker_stats stats;
    enum ending ending;
    json_t *reply;
};

/* Starts and loads the turn in one step: where the start is committed nothing may fail before the turn runs.
 */
static int start_job(struct store *st, void *arg, struct err *err)
{
    struct run *r = arg;

    turn_free(STEAL(r->turn)); /* of an earlier attempt */
    if (turns_start(st, r->item->turn_id, r->slot->id, r->pool->deps.boot, clock_wall_ms(), &r->reset,
                    &r->reset_seen, err) < 0)
        return -1;
    return turns_get(st, r->item->turn_id, &r->turn, err);
}

/* The events of calls, written behind the turn's back in order of their end. */
struct call_event {
    char turn_id[TURN_ID_SIZE];
    struct bus *bus;
    json_t *data;
    int64_t at;
};

static int call_job(struct store *st, void *arg, struct err *err)
{
    struct call_event *e = arg;

    return events_append(st, e->turn_id, "model_call", e->data, e->at, err);
}

static void call_done(void *arg, const struct err *result)
{
    struct call_event *e = arg;

    if (result->code == ERR_NONE)
        bus_publish(e->bus, e->turn_id);
    else
        log_line(LOG_WARN, e->turn_id, "an event is lost: %s", result->text);
    json_decref(e->data);
    free(e);
}

static void on_call(void *arg, const struct broker_call *call)
{
    struct run *r = arg;
    struct err err;
    struct call_event *e = calloc(1, sizeof *e);

    if (!e)
        return;
    memcpy(e->turn_id, r->item->turn_id, sizeof e->turn_id);
    e->bus = r->pool->deps.bus;
    e->at = clock_wall_ms();
    e->data = json_pack("{s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I}", "name", call->name, "status",
                        call->status, "started_ms", (json_int_t)call->started_wall_ms, "duration_ms",
                        (json_int_t)call->duration_ms, "bytes_in", (json_int_t)call->bytes_in, "bytes_out",
                        (json_int_t)call->bytes_out, "prompt_tokens", (json_int_t)call->prompt_tokens,
                        "completion_tokens", (json_int_t)call->completion_tokens);
    if (!e->data || db_submit(r->pool->deps.db, call_job, call_done, e, &err) < 0) {
        json_decref(e->data);
        free(e);
    }
}

static enum ending ending_of_failure(const struct run *r, const char *where, const struct err *err)
{
    log_line(LOG_ERROR, r->item->turn_id, "%s: %s", where, err->text);
    switch (err->code) {
    case ERR_ENGINE_AWAY:
        watch_set_engine(r->pool, false, "engine_unavailable: the engine does not answer");
        return END_ENGINE_UNAVAILABLE;
    case ERR_IMAGE:
        watch_set_engine(r->pool, false, "image_missing: the worker image is not usable");
        return END_IMAGE_MISSING;
    case ERR_CONFLICT:
        return END_WORKSPACE_VIOLATION;
    default:
        return END_ENGINE_ERROR;
    }
}

/* The container, made with the channel's workspace and running, its broker bound. */
static int open_box(struct run *r, const char *workspace, int64_t deadline, struct err *err)
{
    struct slot *slot = r->slot;
    struct broker_turn bind = {.turn_id = r->turn->id,
                               .deadline = deadline,
                               .traceparent = r->turn->traceparent,
                               .on_call = on_call,
                               .arg = r};

    if (box_create(r->pool->deps.sandbox, slot->id, slot->broker_dir, workspace, &slot->box, err) < 0)
        return -1;
    bind.container_id = box_container_id(slot->box);
    if (broker_bind(slot->broker, &bind, err) < 0)
        return -1;
    return box_start(slot->box, err);
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
                               .deadline_ms = c->limits.timeout_ms};

    return worker_turn_line(&line, ret, err);
}

/* Runs the turn in its slot; the ending says how it went. */
static enum ending execute(struct run *r)
{
    const struct config *c = r->pool->deps.config;
    int64_t deadline = r->started + c->limits.timeout_ms;
    struct box_run_limits limits = {.deadline_mono_ms = deadline,
                                    .grace_ms = c->limits.grace_ms,
                                    .abort_fd = r->active.abort_fd,
                                    .max_stdout = LIMIT_STDOUT};
    CLEANUP(free_str)
    char *workspace = NULL;
    CLEANUP(free_str)
    char *line = NULL;
    struct err err;

    if (slot_workspace(r->pool, r->item->channel, &workspace, &err) < 0)
        return ending_of_failure(r, "workspace", &err);
    if (slot_open(r->pool, r->slot, &err) < 0)
        return ending_of_failure(r, "slot", &err);
    if (make_line(r, &line, &err) < 0)
        return ending_of_failure(r, "turn", &err);
    if (open_box(r, workspace, deadline, &err) < 0)
        return ending_of_failure(r, "container", &err);
    if (box_run(r->slot->box, line, strlen(line), &limits, &r->result, &err) < 0)
        return ending_of_failure(r, "run", &err);
    r->late = clock_left_ms(deadline) == 0;
    return END_NONE;
}

static json_t *metrics_of(const struct run *r)
{
    const struct box_result *b = &r->result;
    json_t *m = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I}", "queue_ms", (json_int_t)(r->turn->started_ms - r->turn->created_ms),
        "run_ms", (json_int_t)(clock_mono_ms() - r->started), "start_ms", (json_int_t)b->start_ms,
        "model_calls", (json_int_t)r->stats.model_calls, "prompt_tokens", (json_int_t)r->stats.prompt_tokens,
        "completion_tokens", (json_int_t)r->stats.completion_tokens);

    if (m && b->cpu_us >= 0)
        json_object_set_new(m, "cpu_ms", json_integer(b->cpu_us / 1000));
    if (m && b->memory_peak >= 0)
        json_object_set_new(m, "memory_peak_bytes", json_integer(b->memory_peak));
    if (m)
        json_object_set_new(m, "oom_kills", json_integer(b->oom_kills));
    if (m && b->exit_code >= 0)
        json_object_set_new(m, "exit_code", json_integer(b->exit_code));
    return m;
}

/* Waits a little after a write that failed. False when the service stops: then the database stays as it is
 * and recovery decides at the next start. */
static bool may_retry(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    bool stopping = pool->stopping;
    pthread_mutex_unlock(&pool->lock);
    if (!stopping)
        clock_sleep_ms(500);
    return !stopping;
}

static int end_job(struct store *st, void *arg, struct err *err)
{
    return turns_end(st, arg, err);
}

/* A worker that goes on after its reply may be what keeps the disk full. */
static void kill_worker(const char *turn_id, struct slot *slot)
{
    struct err err;

    if (slot->box && box_remove(slot->box, &err) < 0)
        log_line(LOG_ERROR, turn_id, "the container is not proven dead yet: %s", err.text);
}

/* The end must reach the disk: while it cannot (disk full, I/O error) it is tried again, with the container
 * dead, until the service stops; then recovery ends the turn as interrupted. */
static void commit_end(struct pool *pool, const char *turn_id, struct slot *slot, struct turn_end *end)
{
    struct err err;

    do {
        end->now_ms = clock_wall_ms();
        if (db_write(pool->deps.db, end_job, end, &err) == 0 || err.code == ERR_CONFLICT ||
            err.code == ERR_NOT_FOUND)
            break;
        log_line(LOG_ERROR, turn_id, "the end is not written yet: %s", err.text);
        kill_worker(turn_id, slot);
    } while (may_retry(pool));
    bus_publish(pool->deps.bus, turn_id);
}

/* The end of stderr as text; where its beginning is lost it begins with a whole character, and says so.
 * (mission.md 1) */
static char *stderr_text(const struct box_result *b)
{
    static const char mark[] = "[cut] ";
    char *kept = b->err.data;
    size_t skip = sizeof mark - 1;

    if (b->err.len == 0)
        return NULL;
    if (b->err_total <= b->err.len || b->err.len < 2 * sizeof mark)
        return utf8_sanitize(kept, b->err.len);
    while (((unsigned char)kept[skip] & 0xC0) == 0x80 && skip < sizeof mark + 2)
        skip++;
    memcpy(kept + skip - (sizeof mark - 1), mark, sizeof mark - 1);
    return utf8_sanitize(kept + skip - (sizeof mark - 1), b->err.len - (skip - (sizeof mark - 1)));
}

static void finish(struct run *r)
{
    CLEANUP(json_free)
    json_t *metrics = metrics_of(r);
    CLEANUP(free_str)
    char *text = stderr_text(&r->result);
    struct turn_end end = {.id = r->turn->id,
                           .ending = r->ending,
                           .reply = r->reply,
                           .metrics = metrics,
                           .stderr_text = text,
                           .reset_seen = r->reset_seen};

    commit_end(r->pool, r->turn->id, r->slot, &end);
    log_line(LOG_INFO, r->turn->id, "ended: %s",
             r->ending == END_NONE ? "succeeded" : ending_name(r->ending));
    if (r->result.note[0])
        log_line(LOG_WARN, r->turn->id, "%s", r->result.note);
}

/* queued → running. Where the channel was turned off or deleted meanwhile the turn ends as canceled; where it
 * has ended already nothing is left to do. False: it does not run. */
static bool start_turn(struct run *r)
{
    struct pool *pool = r->pool;
    struct err err;

    while (db_write(pool->deps.db, start_job, r, &err) < 0) {
        if (err.code == ERR_CHANNEL_DISABLED) {
            struct turn_end end = {.id = r->item->turn_id, .ending = END_CHANNEL_DISABLED, .reset_seen = -1};
            commit_end(pool, r->item->turn_id, r->slot, &end);
            return false;
        }
        if (err.code == ERR_CONFLICT || err.code == ERR_NOT_FOUND)
            return false;
        log_line(LOG_ERROR, r->item->turn_id, "the start is not written yet: %s", err.text);
        if (!may_retry(pool))
            return false;
    }
    bus_publish(pool->deps.bus, r->turn->id);
    r->started = clock_mono_ms();
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
    if (r->ending != END_NONE && r->slot->box && r->result.end == BOX_REPLY &&
        box_last_words(r->slot->box, LAST_WORDS_MS, &r->result, &err) < 0)
        log_line(LOG_WARN, r->item->turn_id, "stderr: %s", err.text);
    finish(r);
}

void turn_run(struct pool *pool, const struct queue_item *item)
{
    struct run r;
    struct err err;

    while (make_run(&r, pool, item, &err) < 0) {
        close_fd(&r.active.abort_fd);
        log_line(LOG_ERROR, item->turn_id, "the turn cannot start yet: %s", err.text);
        if (!may_retry(pool))
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
    json_decref(r.reply);
    turn_free(r.turn);
}
