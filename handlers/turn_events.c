/* GET /v1/turns/{id}/events, and the stream that POST /v1/turns can answer with. Nothing is kept per reader
 * but the number of the last event that it was told: the rows are read anew whenever the bus says that there
 * is something, so nobody misses one or gets one twice, however slow it reads. */
#include "handlers/turn_events.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "handlers/accept.h"
#include "handlers/access.h"
#include "handlers/page.h"
#include "handlers/resources.h"
#include "http/response.h"
#include "http/stream.h"
#include "storage/turns.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define RETRY_MS 1000 /* what a client of the stream should wait before it comes back */

/* An event as clients see it: {n, type, at, …data}. New reference; NULL: out of memory. */
static json_t *event_view(const struct event *event)
{
    char at[CLOCK_RFC3339_SIZE];
    json_t *view = json_pack("{s:I, s:s, s:s}", "n", (json_int_t)event->n, "type", event->type, "at",
                             clock_rfc3339(event->at_ms, at));

    if (!view || !event->data || json_object_update_missing(view, (json_t *)(uintptr_t)event->data) == 0)
        return view;
    json_decref(view);
    return NULL;
}

/* What the worker wrote is not for every key. (mission.md section 9) */
static bool may_tell(const struct event *event, bool logs)
{
    return logs || strcmp(event->type, "log") != 0;
}

struct stream {
    struct service *sv;
    char turn_id[TURN_ID_SIZE];
    char key_id[KEY_ID_SIZE]; /* "" for the local administrator */
    int64_t seq;              /* the turn's */
    int64_t told;             /* number of the last event that was sent or passed over */
    bool logs;                /* the caller may read what the worker wrote */
    bool begun;
    atomic_bool look_at_key; /* it may have been revoked */
    struct http_ticket *ticket;
    struct bus_sub *turn_sub, *key_sub;
};

static void turn_changed(void *arg)
{
    struct stream *s = arg;

    http_wake(s->ticket);
}

static void key_changed(void *arg)
{
    struct stream *s = arg;

    s->look_at_key = true;
    http_wake(s->ticket);
}

static void stream_free(void *arg)
{
    struct stream *s = arg;

    bus_unsubscribe(s->sv->bus, s->turn_sub);
    bus_unsubscribe(s->sv->bus, s->key_sub);
    http_ticket_release(s->ticket);
    free(s);
}

/* One look at the database. */
struct batch {
    struct stream *stream;
    struct buf *out;
    int64_t told;
    bool revoked, more, over;
};

static int take(const struct event *event, void *arg, struct err *err)
{
    struct batch *b = arg;
    CLEANUP(json_free) json_t *view = NULL;
    CLEANUP(free_str) char *text = NULL;

    if (b->out->len >= LIMIT_EVENTS_BATCH) {
        b->more = true;
        return 1;
    }
    b->told = event->n;
    b->over = strcmp(event->type, "ended") == 0;
    if (!may_tell(event, b->stream->logs))
        return 0;
    view = event_view(event);
    if (!view)
        return err_no_memory(err);
    if (json_text(view, &text, err) < 0)
        return -1;
    return buf_addf(b->out, err, "id: %" PRId64 "\nevent: %s\ndata: %s\n\n", event->n, event->type, text);
}

/* Nothing new can be because nothing will come any more: the history or the whole turn is gone meanwhile, or
 * the client has had all. */
static int look_for_end(struct store *st, struct batch *b, struct err *err)
{
    struct turn *turn = NULL;

    if (turns_get(st, b->stream->turn_id, &turn, err) < 0) {
        b->over = err->code == ERR_NOT_FOUND;
        return b->over ? 0 : -1;
    }
    b->over = turn_ended(turn->status);
    turn_free(turn);
    return 0;
}

static int batch_job(struct store *st, void *arg, struct err *err)
{
    struct batch *b = arg;
    struct stream *s = b->stream;
    CLEANUP(api_key_free_p) struct api_key *key = NULL;

    if (s->key_id[0] && atomic_exchange(&s->look_at_key, false)) {
        if (keys_get(st, s->key_id, &key, err) < 0)
            return -1;
        b->revoked = key->revoked_ms != 0;
        if (b->revoked)
            return 0;
    }
    if (events_each(st, s->seq, b->told, take, b, err) < 0)
        return -1;
    return b->told == s->told ? look_for_end(st, b, err) : 0;
}

/* What is no event, but tells a reader why the stream ends, or that it lives. */
static int add_comment(const struct batch *b, enum http_why why, struct err *err)
{
    if (b->revoked)
        return buf_adds(b->out, ": the key was revoked\n\n", err);
    if (why == HTTP_STOPPING && !b->more && !b->over)
        return buf_adds(b->out, ": the service is stopping\n\n", err);
    if (why == HTTP_DEADLINE && b->out->len == 0)
        return buf_adds(b->out, ":\n\n", err);
    return 0;
}

static enum http_flow tell(void *arg, enum http_why why, struct buf *out)
{
    struct stream *s = arg;
    struct batch b = {.stream = s, .out = out, .told = s->told};
    struct err err;
    int rc = s->begun ? 0 : buf_addf(out, &err, "retry: %d\n\n", RETRY_MS);

    s->begun = true;
    if (rc < 0 || db_read(s->sv->db, batch_job, &b, &err) < 0 || add_comment(&b, why, &err) < 0) {
        log_line(LOG_WARN, s->turn_id, "a stream of events breaks: %s", err.text);
        return HTTP_BREAK; /* the client comes back and goes on where it was */
    }
    s->told = b.told;
    if (b.revoked || b.over)
        return HTTP_END;
    if (b.more)
        return HTTP_MORE;
    return why == HTTP_STOPPING ? HTTP_END : HTTP_WAIT;
}

static const struct http_stream_ops stream_ops = {tell, stream_free};

struct look {
    const struct http_req *req;
    const char *turn_id;
    int64_t after;
    int64_t seq;
    bool over; /* it has ended, and there is nothing after `after` */
    bool logs;
    size_t limit; /* of a page; 0: none is wanted */
    json_t *data;
    bool has_more;
    int64_t last;
};

static int notice(const struct event *event, void *arg, struct err *err)
{
    (void)event;
    (void)err;
    ((struct look *)arg)->over = false;
    return 1;
}

static int collect(const struct event *event, void *arg, struct err *err)
{
    struct look *l = arg;

    if (!may_tell(event, l->logs))
        return 0;
    l->has_more = json_array_size(l->data) == l->limit;
    if (l->has_more)
        return 1;
    l->last = event->n;
    return json_array_append_new(l->data, event_view(event)) < 0 ? err_no_memory(err) : 0;
}

static int look_job(struct store *st, void *arg, struct err *err)
{
    struct look *l = arg;
    CLEANUP(turn_free_p) struct turn *turn = NULL;

    if (turns_get(st, l->turn_id, &turn, err) < 0)
        return -1;
    if (!auth_allows(caller_of(l->req), SCOPE_TURNS, SCOPE_TURNS_READ, turn->channel, turn->key_id))
        return err_set(err, ERR_NOT_FOUND, "there is no such turn");
    if (turn->events_pruned)
        return err_set(err, ERR_GONE, "the events of this turn are no longer kept; the turn itself is");
    l->seq = turn->seq;
    l->over = turn_ended(turn->status);
    return events_each(st, turn->seq, l->after, l->limit ? collect : notice, l, err);
}

/* Subscribes before the first look, so that nothing falls between. */
static enum http_result begin(struct http_req *req, const struct look *l)
{
    struct stream *s = calloc(1, sizeof *s);
    struct err err;

    if (!s) {
        err_no_memory(&err);
        return http_problem(req, &err, NULL);
    }
    *s = (struct stream){
        .sv = service_of(req), .seq = l->seq, .told = l->after, .logs = l->logs, .look_at_key = true};
    snprintf(s->turn_id, sizeof s->turn_id, "%s", l->turn_id);
    snprintf(s->key_id, sizeof s->key_id, "%s", caller_of(req)->key_id);
    s->ticket = http_stream(req, "text/event-stream", &stream_ops, s, &err);
    if (!s->ticket) {
        free(s);
        return http_problem(req, &err, NULL);
    }
    if (bus_subscribe(s->sv->bus, s->turn_id, turn_changed, s, &s->turn_sub, &err) < 0)
        return http_problem(req, &err, NULL); /* the stream's end frees s */
    if (s->key_id[0] && bus_subscribe(s->sv->bus, s->key_id, key_changed, s, &s->key_sub, &err) < 0)
        return http_problem(req, &err, NULL);
    http_header_add(req, "Cache-Control", "no-cache");
    http_header_add(req, "X-Accel-Buffering", "no");
    return HTTP_DONE;
}

static int look_at(struct look *l, struct err *err)
{
    l->logs = auth_scope(caller_of(l->req), SCOPE_TURNS_READ);
    return db_read(service_of(l->req)->db, look_job, l, err);
}

enum http_result turn_events_stream(struct http_req *req, const char *turn_id, int64_t after)
{
    struct look l = {.req = req, .turn_id = turn_id, .after = after};
    struct err err;

    if (look_at(&l, &err) < 0)
        return http_problem(req, &err, NULL);
    /* So says the standard to a browser that would come back for ever. (WHATWG HTML, section 9.2) */
    if (l.over && http_header(req, "Last-Event-ID"))
        return http_reply_empty(req);
    return begin(req, &l);
}

static int read_number(const char *name, const char *text, int64_t *ret, struct err *err)
{
    *ret = 0;
    if (!text || text[0] == '\0')
        return 0;
    if (strlen(text) > 18 || strspn(text, "0123456789") < strlen(text))
        return err_set(err, ERR_BAD_REQUEST, "%s is the number of an event", name);
    *ret = strtoll(text, NULL, 10);
    return 0;
}

static enum http_result events_page(struct http_req *req, int64_t after)
{
    CLEANUP(json_free) json_t *data = json_array();
    struct look l = {.req = req, .turn_id = http_path_param(req, "id"), .after = after, .data = data};
    struct err err;

    if (!data) {
        err_no_memory(&err);
        return http_problem(req, &err, NULL);
    }
    if (page_limit(http_query(req, "limit"), &l.limit, &err) < 0 || look_at(&l, &err) < 0)
        return http_problem(req, &err, NULL);
    char last[24];
    snprintf(last, sizeof last, "%" PRId64, l.last);
    return http_reply_json(req, 200,
                           json_pack("{s:O, s:b, s:o}", "data", data, "has_more", l.has_more, "next_cursor",
                                     l.has_more ? json_string(last) : json_null()));
}

enum http_result turn_events(struct http_req *req)
{
    const char *resumed = http_header(req, "Last-Event-ID");
    CLEANUP(free_str) char *accept = NULL;
    int64_t after, seen;
    struct err err;

    if (read_number("after", http_query(req, "after"), &after, &err) < 0 ||
        read_number("Last-Event-ID", resumed, &seen, &err) < 0 ||
        http_header_list(req, "Accept", &accept, &err) < 0)
        return http_problem(req, &err, NULL);
    http_header_add(req, "Vary", "Accept");
    if (!accept_events(accept))
        return events_page(req, after);
    return turn_events_stream(req, http_path_param(req, "id"), resumed && *resumed ? seen : after);
}
