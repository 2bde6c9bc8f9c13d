#include "base/clock.h"
#include "base/id.h"
#include "handlers/accept.h"
#include "handlers/access.h"
#include "handlers/commit.h"
#include "handlers/idempotent.h"
#include "handlers/prefer.h"
#include "handlers/resources.h"
#include "handlers/turn_events.h"
#include "handlers/turn_input.h"
#include "handlers/turn_wait.h"
#include "http/response.h"
#include "http/trace.h"
#include "schemas/protocol.h"
#include "schemas/schema.h"
#include "storage/channels.h"
#include "storage/idempotency.h"
#include "storage/turns.h"

#include <stdio.h>
#include <string.h>

/* One turn on its way into the database and the queue. */
struct creation {
    struct service *sv;
    char id[TURN_ID_SIZE];
    char key_id[KEY_ID_SIZE];
    char traceparent[TRACEPARENT_SIZE];
    int64_t began_ms;   /* monotonic: the body was complete */
    int64_t created_ms; /* wall; as committed */
    char *channel;
    json_t *request; /* as stored: the body without its channel */
    bool ignored;
    bool streams; /* the answer is its events */
    struct prefer prefer;
    struct idempotent idempotent;
    char first[TURN_ID_SIZE];  /* the turn that this name stands for already; "": this one */
    struct queue_place *place; /* until the commit: then it belongs to the queue */
};

static void creation_free(void *arg)
{
    struct creation *c = arg;

    if (!c)
        return;
    queue_release(c->sv->queue, c->place);
    free(c->channel);
    json_decref(c->request);
    free(c);
}

static void creation_free_p(struct creation **c)
{
    creation_free(*c);
}

static int find_first(struct store *st, void *arg, struct err *err)
{
    struct creation *c = arg;

    c->first[0] = '\0';
    return idempotency_find(st, c->key_id, c->idempotent.name, c->idempotent.hash, c->first, err);
}

static int insert_job(struct store *st, void *arg, struct err *err)
{
    struct creation *c = arg;

    c->created_ms = clock_wall_ms();
    struct turn_new t = {.id = c->id,
                         .channel = c->channel,
                         .key_id = c->key_id,
                         .request = c->request,
                         .traceparent = c->traceparent,
                         .accept_ms = clock_mono_ms() - c->began_ms,
                         .position = c->place ? queue_ahead(c->place) : 0,
                         .ignored = c->ignored,
                         .max_attempts = (int)json_integer_value(json_object_get(c->request, "max_attempts")),
                         .now_ms = c->created_ms};

    if (!c->idempotent.name[0])
        return turns_insert(st, &t, err);
    /* Looked up again where writes are in order: of many at once the first inserts, the others find it. */
    if (find_first(st, c, err) == 0)
        return 0;
    if (err->code != ERR_NOT_FOUND || turns_insert(st, &t, err) < 0)
        return -1;
    return idempotency_put(st, c->key_id, c->idempotent.name, c->idempotent.hash, c->id, t.now_ms, err);
}

/* On the writer thread, so that turns enter the queue in the order of their commits and a client that left
 * loses nothing. */
static void insert_committed(void *arg, const struct err *result)
{
    struct creation *c = arg;

    if (result->code == ERR_NONE && c->place && !c->first[0])
        queue_push(c->sv->queue, STEAL(c->place), c->id);
}

/* 409 here does not go away by itself, but the openai SDKs retry every 409. (http.md) */
static enum http_result refuse(struct http_req *req, const struct err *err, const struct json_faults *faults)
{
    if (err_status(err->code) == 409)
        http_header_add(req, "x-should-retry", "false");
    if (err_status(err->code) == 429 || err->code == ERR_OVERLOADED || err->code == ERR_DRAINING)
        http_header_add(req, "Retry-After", "%u", queue_retry_after(service_of(req)->queue));
    return http_problem(req, err, faults);
}

/* As it was committed: what became of it since, the client asks for. */
static enum http_result accepted(struct http_req *req, const struct creation *c)
{
    struct turn t = {
        .channel = c->channel, .request = c->request, .status = TURN_QUEUED, .created_ms = c->created_ms};

    memcpy(t.id, c->id, sizeof t.id);
    memcpy(t.traceparent, c->traceparent, sizeof t.traceparent);
    turn_answer(req, &t, false);
    return HTTP_DONE;
}

static enum http_result inserted(struct http_req *req, const struct err *result, void *arg)
{
    const struct creation *c = arg;

    if (result->code != ERR_NONE)
        return refuse(req, result, NULL);
    const char *id = c->first[0] ? c->first : c->id;
    http_header_add(req, "Vary", "Accept, Prefer");
    if (c->first[0])
        http_header_add(req, "Idempotent-Replayed", "true");
    if (c->streams) {
        http_header_add(req, "Location", "/v1/turns/%s", id);
        return turn_events_stream(req, id, 0);
    }
    if (c->prefer.applied && !c->ignored)
        http_header_add(req, "Preference-Applied", "%s", c->prefer.applied);
    if (c->prefer.wait_s == 0 && !c->ignored && !c->first[0])
        return accepted(req, c);
    return turn_wait(req, id, c->prefer.wait_s);
}

static const struct commit_ops insert_ops = {insert_job, insert_committed, inserted, creation_free};

/* A chat event runs only when it speaks to the bot. (mission.md section 4) */
static bool origin_runs(const json_t *origin)
{
    if (!origin)
        return true;
    if (json_is_true(json_object_get(origin, "author_is_bot")) ||
        json_is_true(json_object_get(origin, "integration")) ||
        json_is_true(json_object_get(origin, "is_direct")))
        return false;
    return json_is_true(json_object_get(origin, "mentions_bot")) ||
           json_is_true(json_object_get(origin, "replies_to_bot"));
}

/* Takes the channel out of the body; what remains is the request. Only after the body has passed the schema.
 */
static int take_body(struct creation *c, json_t *body, struct err *err)
{
    const char *channel = json_str(body, "channel");

    c->channel = channel ? strdup(channel) : NULL;
    if (!c->channel)
        return err_no_memory(err);
    json_object_del(body, "channel");
    c->request = json_incref(body);
    c->ignored = !origin_runs(json_object_get(body, "origin"));
    return 0;
}

/* The turn must fit on the worker's line, with the operator's prompt. (mission.md section 1) */
static int check_line(const struct http_req *req, const struct creation *c, struct err *err)
{
    const struct config *config = c->sv->config;
    struct worker_turn turn = {.id = c->id,
                               .request = c->request,
                               .model = config->model.name,
                               .prompt = config->model.prompt,
                               .time_zone = config->model.time_zone,
                               .deadline_ms = config->limits.timeout_ms};
    CLEANUP(free_str) char *line = NULL;
    size_t body;

    http_body(req, &body);
    if (worker_turn_fits(&turn, body))
        return 0;
    return worker_turn_line(&turn, &line, err);
}

/* All that is wrong with the body, at once. What passes has its messages and tools rebuilt. */
static int check_body(const struct config *config, json_t *body, struct json_faults *faults, struct err *err)
{
    const char *channel = json_str(body, "channel");
    struct err key;

    bool sound = schema_check("turn_request", body, "", faults) == 0;
    if (sound && channel && channel_key_check(channel, &key) < 0)
        json_fault(faults, "/channel", "%s",
                   key.text); /* its limit is in bytes, the schema counts characters */
    if (turn_input(body, faults, err) < 0)
        return -1;
    turn_limits(body, config, faults);
    if (faults->total > 0)
        return json_faults_error(faults, err);
    return 0;
}

static int enabled_job(struct store *st, void *arg, struct err *err)
{
    CLEANUP(channel_free_p) struct channel *channel = NULL;

    return channels_expect_enabled(st, arg, &channel, err);
}

/* Everything before the commit, which looks whether the channel is enabled. That it is not is told rather
 * than that the queue is full. */
static int prepare(const struct http_req *req, struct creation *c, struct json_faults *faults,
                   struct err *err)
{
    CLEANUP(json_free) json_t *body = NULL;

    if (http_body_json(req, &body, err) < 0 || check_body(c->sv->config, body, faults, err) < 0 ||
        take_body(c, body, err) < 0)
        return -1;
    if (access_channel(req, c->channel, SCOPE_TURNS, err) < 0 || check_line(req, c, err) < 0)
        return -1;
    if (!c->sv->host.has_room(c->sv->host.host))
        return err_set(err, ERR_DISK_FULL, "new turns are refused until there is room");
    if (c->ignored || queue_reserve(c->sv->queue, c->channel, c->key_id, &c->place, err) == 0)
        return 0;
    struct err first;
    if (db_read(c->sv->db, enabled_job, c->channel, &first) < 0)
        *err = first;
    return -1;
}

/* How the caller wants to be answered. */
static int read_wishes(const struct http_req *req, struct creation *c, struct err *err)
{
    CLEANUP(free_str) char *accept = NULL;
    CLEANUP(free_str) char *prefer = NULL;

    if (http_header_list(req, "Accept", &accept, err) < 0 ||
        http_header_list(req, "Prefer", &prefer, err) < 0)
        return -1;
    c->streams = accept_events(accept);
    c->prefer = prefer_parse(prefer);
    return idempotent_read(req, &c->idempotent, err);
}

enum http_result turns_create(struct http_req *req)
{
    CLEANUP(creation_free_p) struct creation *c = calloc(1, sizeof *c);
    CLEANUP(json_faults_free) struct json_faults faults = {0};
    struct err err;

    if (!c) {
        err_no_memory(&err);
        return http_problem(req, &err, NULL);
    }
    c->sv = service_of(req);
    c->began_ms = clock_mono_ms();
    id_new_in_time("turn_", c->id, sizeof c->id);
    snprintf(c->traceparent, sizeof c->traceparent, "%s", http_traceparent(req));
    snprintf(c->key_id, sizeof c->key_id, "%s", caller_of(req)->key_id);
    if (read_wishes(req, c, &err) < 0)
        return http_problem(req, &err, NULL);
    if (c->idempotent.name[0]) { /* a replay needs no place in the queue and no enabled channel */
        if (db_read(c->sv->db, find_first, c, &err) == 0)
            return inserted(req, &(struct err){0}, c);
        if (err.code != ERR_NOT_FOUND)
            return http_problem(req, &err, NULL);
    }
    if (prepare(req, c, &faults, &err) < 0)
        return refuse(req, &err, &faults);
    http_body_drop(req); /* the wait may be long */
    return commit(req, &insert_ops, STEAL(c));
}
