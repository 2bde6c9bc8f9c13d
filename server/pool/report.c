/* What is kept of a turn that has ended, and how it reaches the disk. */
#include "pool/run.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/utf8.h"

#include <string.h>

#define SPANS_BEFORE_START 2 /* accept and queue */

static json_t *metrics_of(const struct run *r)
{
    const struct box_result *b = &r->result;
    json_t *m = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "queue_ms",
                          (json_int_t)(r->turn->started_ms - r->turn->created_ms), "run_ms",
                          (json_int_t)(clock_mono_ms() - r->started), "start_ms", (json_int_t)b->start_ms,
                          "model_calls", (json_int_t)r->stats.model_calls, "tool_calls",
                          (json_int_t)(r->stats.calls - r->stats.model_calls), "prompt_tokens",
                          (json_int_t)r->stats.prompt_tokens, "completion_tokens",
                          (json_int_t)r->stats.completion_tokens);

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

bool run_may_retry(struct pool *pool)
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
    } while (run_may_retry(pool));
    bus_publish(pool->deps.bus, turn_id);
}

/* Bytes of an incomplete character at the beginning. */
static size_t torn(const char *data, size_t len)
{
    size_t skip = 0;

    while (skip < 3 && skip < len && ((unsigned char)data[skip] & 0xC0) == 0x80)
        skip++;
    return skip;
}

static json_t *output_view(const char *data, size_t len, uint64_t total, bool cut)
{
    CLEANUP(free_str) char *text = utf8_sanitize(len ? data : "", len);

    return text
               ? json_pack("{s:s, s:I, s:b}", "text", text, "bytes", (json_int_t)total, "truncated", (int)cut)
               : NULL;
}

/* Of stderr the end is kept, cut between characters. */
static json_t *stderr_of(const struct box_result *b)
{
    bool cut = b->err_total > b->err.len;
    size_t skip = cut ? torn(b->err.data, b->err.len) : 0;
    /* Behind a reply the rest of a character may still have been under way. */
    size_t drop = utf8_ragged(b->err.data + skip, b->err.len - skip);

    return output_view(b->err.data + skip, b->err.len - skip - drop, b->err_total, cut || drop > 0);
}

/* Of stdout the beginning. The newline that ended a reply is not missed. */
static json_t *stdout_of(const struct box_result *b)
{
    bool cut = b->out_total > b->out.len + (b->end == BOX_REPLY ? 1 : 0);
    size_t drop = cut ? utf8_ragged(b->out.data, b->out.len) : 0;

    return output_view(b->out.data, b->out.len - drop, b->out_total, cut);
}

/* What the worker wrote: stderr always, stdout where it did not become the reply. */
static json_t *logs_of(const struct run *r)
{
    json_t *logs = json_object();

    if (!logs || json_object_set_new(logs, "stderr", stderr_of(&r->result)) < 0 ||
        (r->ending != END_NONE && json_object_set_new(logs, "stdout", stdout_of(&r->result)) < 0)) {
        json_decref(logs);
        return NULL;
    }
    return logs;
}

static json_t *span_of(const char *name, int64_t started_ms, int64_t duration_ms)
{
    return json_pack("{s:s, s:I, s:I}", "name", name, "started_ms", (json_int_t)started_ms, "duration_ms",
                     (json_int_t)duration_ms);
}

void run_span(struct run *r, const char *name, int64_t started_ms, int64_t duration_ms)
{
    if (!r->pool->deps.config->result.spans)
        return;
    if (!r->spans)
        r->spans = json_array();
    json_array_append_new(r->spans, span_of(name, started_ms, duration_ms));
}

/* It ended before the calls, which the broker has noted meanwhile. */
static void insert_start(struct run *r)
{
    if (r->opened_ms)
        json_array_insert_new(r->spans, SPANS_BEFORE_START,
                              span_of("start", r->turn->started_ms, r->opened_ms - r->turn->started_ms));
}

void run_report(struct run *r)
{
    const struct config *c = r->pool->deps.config;
    int64_t now = clock_wall_ms();

    insert_start(r);
    run_span(r, "run", r->turn->started_ms, now - r->turn->started_ms);
    if (r->ended_ms)
        run_span(r, "reply", r->ended_ms, now - r->ended_ms);
    CLEANUP(json_free) json_t *metrics = c->result.metrics ? metrics_of(r) : NULL;
    CLEANUP(json_free) json_t *logs = c->result.logs ? logs_of(r) : NULL;
    struct turn_end end = {.id = r->turn->id,
                           .ending = r->ending,
                           .reply = r->reply,
                           .metrics = metrics,
                           .logs = logs,
                           .spans = r->spans,
                           .reset_seen = r->reset_seen};

    run_flush_log(r);
    commit_end(r->pool, r->turn->id, r->slot, &end);
    log_line(LOG_INFO, r->turn->id, "ended: %s",
             r->ending == END_NONE ? "succeeded" : ending_name(r->ending));
    if (r->result.note[0])
        log_line(LOG_WARN, r->turn->id, "%s", r->result.note);
}

void run_end_unstarted(struct run *r, enum ending why)
{
    struct turn_end end = {.id = r->item->turn_id, .ending = why, .reset_seen = -1};

    commit_end(r->pool, r->item->turn_id, r->slot, &end);
    log_line(LOG_INFO, r->item->turn_id, "not started: %s", ending_name(why));
}
