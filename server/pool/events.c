#include "pool/run.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/utf8.h"

#include <string.h>

#define LOG_EVENTS   64         /* of one turn */
#define LOG_PIECE    (4 * 1024) /* bytes of one event at most */
#define LOG_EVERY_MS 250        /* unless a piece is full */

struct turn_event {
    char turn_id[TURN_ID_SIZE];
    struct bus *bus;
    const char *type; /* literal */
    json_t *data;
    int64_t at;
};

static int event_job(struct store *st, void *arg, struct err *err)
{
    struct turn_event *e = arg;

    return events_append(st, e->turn_id, e->type, e->data, e->at, err);
}

static void event_done(void *arg, const struct err *result)
{
    struct turn_event *e = arg;

    if (result->code == ERR_NONE)
        bus_publish(e->bus, e->turn_id);
    else
        log_line(LOG_WARN, e->turn_id, "an event is lost: %s", result->text);
    json_decref(e->data);
    free(e);
}

/* Steals data. An event that cannot be written is told in the log; the turn goes on. */
static void submit(struct run *r, const char *type, json_t *data)
{
    struct err err = {0};
    struct turn_event *e = calloc(1, sizeof *e);

    if (e && data) {
        *e = (struct turn_event){.bus = r->pool->deps.bus, .type = type, .data = data, .at = clock_wall_ms()};
        memcpy(e->turn_id, r->item->turn_id, sizeof e->turn_id);
        if (db_submit(r->pool->deps.db, event_job, event_done, e, &err) == 0)
            return;
    }
    log_line(LOG_WARN, r->item->turn_id, "an event is lost: %s", err.code ? err.text : "out of memory");
    json_decref(data);
    free(e);
}

void run_on_call(void *arg, const struct broker_call *call)
{
    struct run *r = arg;

    /* One call at a time, and only between broker_bind and broker_close, when no other thread notes any. */
    run_span(r, call->kind, call->started_wall_ms, call->duration_ms);
    submit(arg, "model_call",
           json_pack("{s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I}", "name", call->name, "status", call->status,
                     "started_ms", (json_int_t)call->started_wall_ms, "duration_ms",
                     (json_int_t)call->duration_ms, "bytes_in", (json_int_t)call->bytes_in, "bytes_out",
                     (json_int_t)call->bytes_out, "prompt_tokens", (json_int_t)call->prompt_tokens,
                     "completion_tokens", (json_int_t)call->completion_tokens));
}

/* A character that is not complete yet stays for the next piece, unless this is the last. */
static void flush(struct run *r, bool last)
{
    size_t keep = last || !r->said.len ? 0 : utf8_ragged(r->said.data, r->said.len);
    CLEANUP(free_str)
    char *text = r->said.len > keep ? utf8_sanitize(r->said.data, r->said.len - keep) : NULL;

    if (keep > 0)
        memmove(r->said.data, r->said.data + r->said.len - keep, keep);
    r->said.len = keep;
    r->said_at = clock_mono_ms();
    if (!text)
        return;
    r->said_events++;
    submit(r, "log", json_pack("{s:s, s:s}", "stream", "stderr", "text", text));
}

void run_flush_log(struct run *r)
{
    flush(r, true);
    buf_free(&r->said);
}

void run_on_stderr(void *arg, const char *data, size_t len)
{
    struct run *r = arg;
    struct err ignored;

    while (len > 0 && r->said_events < LOG_EVENTS) {
        size_t room = LOG_PIECE - r->said.len, take = len < room ? len : room;
        r->said.max = LOG_PIECE;
        if (buf_add(&r->said, data, take, &ignored) < 0)
            return;
        data += take;
        len -= take;
        if (r->said.len == LOG_PIECE || clock_mono_ms() - r->said_at >= LOG_EVERY_MS)
            flush(r, false);
    }
}
