/* Events of turns: as a page, and as a stream that goes on. */
#include "rig.h"

#include "handlers/accept.h"
#include "schemas/schema.h"
#include "storage/retention.h"

#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define SSE "Accept: text/event-stream\r\n"

static struct rig r;
static char own_id[KEY_ID_SIZE], own[KEY_TOKEN_SIZE];    /* turns */
static char all_id[KEY_ID_SIZE], all[KEY_TOKEN_SIZE];    /* turns:read */
static char else_id[KEY_ID_SIZE], other[KEY_TOKEN_SIZE]; /* of another channel */

static void start(void)
{
    rig_start(&r, 0);
    rig_key(&r, SCOPE_TURNS, "web:*", own_id, own);
    rig_key(&r, SCOPE_TURNS_READ, "web:*", all_id, all);
    rig_key(&r, SCOPE_TURNS | SCOPE_TURNS_READ, "other:*", else_id, other);
    rig_channel(&r, "web:a", true);
    rig_channel(&r, "web:off", false);
}

static void stop(void)
{
    rig_stop(&r);
}

TestSuite(events, .init = start, .fini = stop, .timeout = 60);

/* A turn that runs, and its channel (to be freed by finish). */
static char turn[TURN_ID_SIZE], *channel;

static void run(void)
{
    struct answer a = rig_receive(
        rig_send(&r, false, own, "POST", "/v1/turns", "Prefer: respond-async\r\n", turn_body("web:a", "hi")));
    cr_assert_eq(a.status, 202);
    answer_free(&a);
    rig_begin_one(&r, turn, &channel);
}

static void finish(void)
{
    rig_end(&r, turn, channel, "bye");
    free(channel);
}

struct addition {
    const char *type;
    json_t *data;
};

static int append_job(struct store *st, void *arg, struct err *err)
{
    const struct addition *a = arg;
    return events_append(st, turn, a->type, a->data, clock_wall_ms(), err);
}

static void append(const char *type, const char *name)
{
    struct addition a = {type, json_pack("{s:s}", "name", name)};
    struct err err;

    cr_assert_eq(db_write(r.db, append_job, &a, &err), 0, "%s", err.text);
    json_decref(a.data);
    bus_publish(r.bus, turn);
}

static int get(const char *token, const char *query, const char *extra)
{
    char path[128];

    snprintf(path, sizeof path, "/v1/turns/%s/events%s", turn, query);
    return rig_send(&r, false, token, "GET", path, extra, NULL);
}

/* Reads a stream until `until` was seen (NULL: the end of the connection), at most 10 s: what stands in its
 * chunks. Static buffers; the head lands in `head`. */
static char head[4096];
static const char *read_stream(int fd, const char *until)
{
    static char raw[512 * 1024], text[512 * 1024];
    size_t len = 0, n = 0;
    int64_t deadline = clock_mono_ms() + 10000;
    const char *at;

    raw[0] = head[0] = '\0';
    while (!until || !strstr(raw, until)) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        cr_assert_gt(poll(&p, 1, clock_left_ms(deadline)), 0, "no %s within 10 s: %s", until, raw);
        ssize_t got = recv(fd, raw + len, sizeof raw - 1 - len, 0);
        cr_assert_geq(got, 0);
        if (got == 0)
            break;
        len += (size_t)got;
        raw[len] = '\0';
    }
    at = raw;
    if (strncmp(raw, "HTTP/", 5) == 0) {
        at = strstr(raw, "\r\n\r\n") + 4;
        snprintf(head, sizeof head, "%.*s", (int)(at - raw), raw);
    }
    for (char *end; *at; at = end + 2 + 2) {
        size_t size = strtoul(at, &end, 16);
        if (end == at || size == 0)
            break;
        memcpy(text + n, end + 2, size);
        n += size;
        end += size;
    }
    text[n] = '\0';
    return text;
}

/* The numbers and types of the events of a stream: "1 queued 2 started ". What the frames say thrice must
 * agree. */
static const char *told(const char *stream)
{
    static char list[64 * 1024];
    size_t len = 0;
    struct err err;

    list[0] = '\0';
    for (const char *at = stream; (at = strstr(at, "id: ")); at++) {
        long n;
        char type[32];
        cr_assert_eq(sscanf(at, "id: %ld\nevent: %31s\ndata: ", &n, type), 2, "%.200s", at);
        const char *data = strstr(at, "\ndata: ") + 7, *end = strstr(data, "\n\n");
        json_t *value = NULL;
        cr_assert(end);
        cr_assert_eq(json_parse(data, (size_t)(end - data), &value, &err), 0, "%s: %.200s", err.text, data);
        cr_assert_eq(json_integer_value(json_object_get(value, "n")), n);
        cr_assert_str_eq(json_str(value, "type"), type);
        cr_assert(json_str(value, "at"));
        struct json_faults faults = {0};
        cr_assert_eq(schema_check("answers#event", value, "", &faults), 0);
        json_decref(value);
        len += (size_t)snprintf(list + len, sizeof list - len, "%ld %s ", n, type);
    }
    return list;
}

Test(events, a_page)
{
    run();
    append("model_call", "model");
    append("log", "noise");
    finish();
    struct answer a = rig_receive(get(all, "", NULL));
    cr_assert_eq(a.status, 200);
    cr_assert(strstr(a.head, "Vary: Accept\r\n"));
    const json_t *data = json_object_get(a.body, "data");
    static const char *const types[] = {"queued", "started", "model_call", "log"};
    cr_assert_geq(json_array_size(data), 5u);
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        const json_t *event = json_array_get(data, i);
        cr_assert_str_eq(json_str(event, "type"), types[i]);
        cr_assert_eq(json_integer_value(json_object_get(event, "n")), (json_int_t)i + 1);
    }
    cr_assert_eq(json_integer_value(json_object_get(json_array_get(data, 0), "position")), 0);
    cr_assert_str_eq(json_str(json_array_get(data, 2), "name"), "model");
    const json_t *last = json_array_get(data, json_array_size(data) - 1);
    cr_assert_str_eq(json_str(last, "type"), "ended");
    cr_assert_str_eq(json_str(last, "status"), "succeeded");
    cr_assert(json_is_false(json_object_get(a.body, "has_more")));
    cr_assert(json_is_null(json_object_get(a.body, "next_cursor")));
    answer_free(&a);
}

Test(events, pages_one_by_one)
{
    char query[64] = "?limit=1", seen[128] = "";

    run();
    append("log", "noise"); /* passed over, and no page is empty for it */
    finish();
    for (int i = 0; i < 10 && query[0]; i++) {
        struct answer a = rig_receive(get(own, query, NULL));
        const json_t *data = json_object_get(a.body, "data");
        cr_assert_eq(json_array_size(data), 1u);
        strcat(strcat(seen, json_str(json_array_get(data, 0), "type")), " ");
        const char *cursor = json_str(a.body, "next_cursor");
        cr_assert_eq(cursor != NULL, json_is_true(json_object_get(a.body, "has_more")));
        query[0] = '\0';
        if (cursor)
            snprintf(query, sizeof query, "?limit=1&after=%s", cursor);
        answer_free(&a);
    }
    cr_assert(strstr(seen, "queued started ") == seen && !strstr(seen, "log") &&
                  strcmp(seen + strlen(seen) - 6, "ended ") == 0,
              "%s", seen);
}

Test(events, of_others_are_not_there)
{
    run();
    static const char *const forms[] = {NULL, SSE};
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        struct answer a = rig_receive(get(other, "", forms[i]));
        cr_expect_eq(a.status, 404);
        answer_free(&a);
        a = rig_receive(rig_send(&r, false, own, "GET", "/v1/turns/turn_0/events", forms[i], NULL));
        cr_expect_eq(a.status, 404);
        answer_free(&a);
        a = rig_receive(get(NULL, "", forms[i]));
        cr_expect_eq(a.status, 401);
        answer_free(&a);
    }
    finish();
}

Test(events, refuses)
{
    static const struct {
        const char *query, *extra;
    } cases[] = {{"?after=x", NULL},
                 {"?after=-1", NULL},
                 {"?after=1e3", SSE},
                 {"?limit=0", NULL},
                 {"?limit=201", NULL},
                 {"?limit=x", NULL},
                 {"?what=1", NULL},
                 {"?after=1&after=2", NULL},
                 {"", SSE "Last-Event-ID: abc\r\n"},
                 {"", SSE "Last-Event-ID: 99999999999999999999\r\n"}};
    run();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct answer a = rig_receive(get(own, cases[i].query, cases[i].extra));
        cr_expect_eq(a.status, 400, "%s %s: %d", cases[i].query, cases[i].extra ? cases[i].extra : "",
                     a.status);
        answer_free(&a);
    }
    finish();
}

Test(events, a_stream_from_beginning_to_end)
{
    run();
    int fd = get(own, "", "Accept: text/html\r\n" SSE); /* two lines are one list */
    const char *text = read_stream(fd, "started");
    cr_assert_str_eq(told(text), "1 queued 2 started ", "%s", text);
    cr_assert(strncmp(text, "retry: ", 7) == 0, "%s", text);
    cr_assert(strstr(head, "HTTP/1.1 200 ") && strstr(head, "Content-Type: text/event-stream\r\n") &&
                  strstr(head, "Cache-Control: no-cache\r\n") && strstr(head, "X-Accel-Buffering: no\r\n") &&
                  strstr(head, "Vary: Accept\r\n") && strstr(head, "X-Request-Id: "),
              "%s", head);
    append("model_call", "model");
    cr_assert_str_eq(told(read_stream(fd, "model_call")), "3 model_call ");
    finish();
    text = read_stream(fd, NULL);
    const char *list = told(text);
    cr_assert(strstr(list, " ended ") && strncmp(list, "4 ", 2) == 0, "%s", list);
    close(fd);
}

Test(events, logs_are_for_those_who_may_read_them)
{
    run();
    append("log", "SECRET");
    append("model_call", "model");
    append("log", "SECRET");
    finish();
    int fd = get(own, "", SSE);
    const char *text = read_stream(fd, NULL);
    cr_assert_not(strstr(text, "SECRET"), "%s", text);
    cr_assert(strncmp(told(text), "1 queued 2 started 4 model_call 6 ", 34) == 0, "%s", told(text));
    close(fd);
    fd = get(all, "", SSE);
    cr_assert(strstr(told(read_stream(fd, NULL)), "3 log 4 model_call 5 log "));
    close(fd);
    struct answer a = rig_receive(get(own, "", NULL));
    cr_assert_eq(json_array_size(json_object_get(a.body, "data")) + 2,
                 (size_t)json_integer_value(
                     json_object_get(json_array_get(json_object_get(a.body, "data"),
                                                    json_array_size(json_object_get(a.body, "data")) - 1),
                                     "n")));
    answer_free(&a);
}

Test(events, goes_on_after_the_last_that_was_seen)
{
    run();
    append("model_call", "model");
    static const struct {
        const char *query, *extra, *first;
    } cases[] = {{"?after=2", SSE, "3 model_call "},
                 {"", SSE "Last-Event-ID: 2\r\n", "3 model_call "},
                 {"?after=1", SSE "Last-Event-ID: 2\r\n", "3 model_call "},
                 {"?after=2", SSE "Last-Event-ID:\r\n", "3 model_call "}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int fd = get(own, cases[i].query, cases[i].extra);
        cr_expect_str_eq(told(read_stream(fd, "model_call")), cases[i].first, "%zu", i);
        close(fd);
    }
    int fd = get(own, "?after=3", SSE);
    append("model_call", "again");
    cr_assert_str_eq(told(read_stream(fd, "again")), "4 model_call ");
    finish();
    read_stream(fd, NULL);
    close(fd);
}

Test(events, of_a_turn_that_told_all)
{
    run();
    finish();
    struct answer a = rig_receive(get(own, "?after=100", NULL));
    cr_assert_eq(a.status, 200);
    cr_assert_eq(json_array_size(json_object_get(a.body, "data")), 0u);
    answer_free(&a);
    int fd = get(own, "?after=100", SSE);
    cr_assert_str_empty(told(read_stream(fd, NULL)));
    cr_assert(strstr(head, " 200 "));
    close(fd);
    /* A browser would come back again and again. */
    a = rig_receive(get(own, "", SSE "Last-Event-ID: 100\r\n"));
    cr_assert_eq(a.status, 204);
    answer_free(&a);
}

static int prune_job(struct store *st, void *arg, struct err *err)
{
    int removed;
    (void)arg;
    return retention_prune(st, &(struct retention){.events_before_ms = clock_wall_ms() + 1000, .most = 10},
                           &removed, err);
}

Test(events, that_are_no_longer_kept)
{
    struct err err;

    run();
    finish();
    cr_assert_eq(db_write(r.db, prune_job, NULL, &err), 0, "%s", err.text);
    static const char *const forms[] = {NULL, SSE, SSE "Last-Event-ID: 1\r\n"};
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        struct answer a = rig_receive(get(own, "", forms[i]));
        cr_assert_eq(a.status, 410);
        cr_assert_str_eq(answer_str(&a, "code"), "gone");
        answer_free(&a);
    }
}

/* More than is read at once, and single ones that are larger than that. */
Test(events, many_and_large_ones)
{
    static char large[33000];
    char expected[8192] = "";

    run();
    memset(large, 'x', sizeof large - 1);
    int fd = get(all, "?after=2", SSE);
    for (int i = 3; i < 150; i++) {
        append("log", i % 12 == 0 ? large : "a line of some length, as it comes from a worker that talks");
        snprintf(expected + strlen(expected), 32, "%d log ", i);
    }
    finish();
    const char *list = told(read_stream(fd, NULL));
    cr_assert(strncmp(list, expected, strlen(expected)) == 0, "%s", list);
    close(fd);
    int64_t began = clock_mono_ms();
    fd = get(all, "?after=2", SSE); /* and all that is stored, without a wait between the batches */
    list = told(read_stream(fd, NULL));
    cr_assert_lt(clock_mono_ms() - began, 1000);
    cr_assert(strncmp(list, expected, strlen(expected)) == 0 && strstr(list, " ended "), "%s", list);
    close(fd);
}

static int recover_job(struct store *st, void *arg, struct err *err)
{
    bool again;
    (void)arg;
    return turns_recover(st, turn, clock_wall_ms(), &again, err);
}

/* A turn that runs again after a crash goes on with its numbers, and its readers with it. */
Test(events, of_a_turn_that_runs_again)
{
    struct err err;

    struct answer a = rig_receive(rig_send(&r, false, own, "POST", "/v1/turns", "Prefer: respond-async\r\n",
                                           "{\"channel\":\"web:a\",\"speaker\":{\"id\":\"u\",\"name\":\"n\"},"
                                           "\"text\":\"x\",\"max_attempts\":2}"));
    cr_assert_eq(a.status, 202);
    answer_free(&a);
    rig_begin_one(&r, turn, &channel);
    int fd = get(own, "", SSE);
    cr_assert_str_eq(told(read_stream(fd, "started")), "1 queued 2 started ");
    cr_assert_eq(db_write(r.db, recover_job, NULL, &err), 0, "%s", err.text);
    bus_publish(r.bus, turn);
    cr_assert_str_eq(told(read_stream(fd, "queued")), "3 queued ");
    finish();
    cr_assert(strncmp(told(read_stream(fd, NULL)), "4 ", 2) == 0);
    close(fd);
}

Test(events, a_post_that_streams)
{
    int fd =
        rig_send(&r, false, own, "POST", "/v1/turns",
                 "Accept: application/json;q=0.1\r\n" SSE "X-Request-Id: mine\r\n", turn_body("web:a", "hi"));
    const char *text = read_stream(fd, "queued");
    cr_assert_str_eq(told(text), "1 queued ");
    cr_assert(strstr(head, "HTTP/1.1 200 ") && strstr(head, "Content-Type: text/event-stream\r\n") &&
                  strstr(head, "X-Request-Id: mine\r\n") && strstr(head, "Vary: Accept, Prefer\r\n"),
              "%s", head);
    char location[64] = "";
    sscanf(strstr(head, "Location: "), "Location: /v1/turns/%40s", location);
    rig_begin_one(&r, turn, &channel);
    cr_assert_str_eq(location, turn);
    cr_assert_str_eq(told(read_stream(fd, "started")), "2 started ");
    finish();
    cr_assert(strstr(read_stream(fd, NULL), "\"status\":\"succeeded\""));
    close(fd);
}

Test(events, a_post_that_streams_nothing_but_its_end)
{
    int fd = rig_send(
        &r, false, own, "POST", "/v1/turns", SSE,
        "{\"channel\":\"web:a\",\"speaker\":{\"id\":\"u\",\"name\":\"n\"},\"text\":\"x\",\"origin\":{"
        "\"author_is_bot\":true,\"integration\":false,\"is_direct\":false,\"mentions_bot\":true,"
        "\"replies_to_bot\":false}}");
    const char *text = read_stream(fd, NULL);
    cr_assert_str_eq(told(text), "1 ended ");
    cr_assert(strstr(text, "\"status\":\"ignored\""));
    close(fd);
}

Test(events, a_post_that_is_refused)
{
    static const struct {
        const char *token, *body, *code;
        int status;
    } cases[] = {{own, "{", "invalid_json", 400},
                 {own, "{}", "invalid", 422},
                 {all, "{}", "forbidden", 403},
                 {NULL, "{}", "unauthorized", 401}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct answer a =
            rig_receive(rig_send(&r, false, cases[i].token, "POST", "/v1/turns", SSE, cases[i].body));
        cr_expect_eq(a.status, cases[i].status);
        cr_expect_str_eq(answer_str(&a, "code"), cases[i].code);
        cr_expect(strstr(a.head, "application/problem+json"));
        answer_free(&a);
    }
    struct answer a =
        rig_receive(rig_send(&r, false, own, "POST", "/v1/turns", SSE, turn_body("web:off", "x")));
    cr_expect_eq(a.status, 409);
    answer_free(&a);
}

/* The turn goes on, and its name leads back to its events. */
Test(events, a_post_whose_client_leaves)
{
    static const char name[] = SSE "Idempotency-Key: k1\r\n";
    int fd = rig_send(&r, false, own, "POST", "/v1/turns", name, turn_body("web:a", "hi"));
    read_stream(fd, "queued");
    close(fd);
    rig_begin_one(&r, turn, &channel);
    fd = rig_send(&r, false, own, "POST", "/v1/turns", name, turn_body("web:a", "hi"));
    cr_assert_str_eq(told(read_stream(fd, "started")), "1 queued 2 started ");
    cr_assert(strstr(head, "Idempotent-Replayed: true\r\n"));
    finish();
    cr_assert(strstr(read_stream(fd, NULL), "\"status\":\"succeeded\""));
    close(fd);
}

Test(events, revoked_key_ends_its_streams)
{
    char path[64];

    run();
    int fd = get(own, "", SSE), stays = get(all, "", SSE);
    read_stream(fd, "started");
    read_stream(stays, "started");
    int64_t began = clock_mono_ms();
    snprintf(path, sizeof path, "/v1/keys/%s", own_id);
    struct answer a = rig_admin(&r, "DELETE", path, NULL);
    cr_assert_eq(a.status, 204);
    answer_free(&a);
    const char *text = read_stream(fd, NULL);
    cr_assert_lt(clock_mono_ms() - began, 1000);
    cr_assert(strstr(text, ": the key was revoked\n\n"), "%s", text);
    close(fd);
    finish();
    cr_assert(strstr(told(read_stream(stays, NULL)), "ended"));
    close(stays);
}

Test(events, says_that_it_lives)
{
    run();
    int fd = get(own, "", SSE);
    read_stream(fd, "started");
    for (int i = 0; i < 2; i++) {
        int64_t began = clock_mono_ms();
        cr_assert_str_eq(read_stream(fd, ":\n\n"), ":\n\n");
        int64_t took = clock_mono_ms() - began;
        cr_assert(took > 100 && took < 2000, "%lld ms", (long long)took);
    }
    close(fd);
    finish();
}

Test(events, a_head_alone)
{
    char path[128];

    run();
    snprintf(path, sizeof path, "/v1/turns/%s/events", turn);
    int fd = rig_send(&r, false, own, "HEAD", path, SSE, NULL);
    struct answer a = rig_receive(fd);
    cr_assert_eq(a.status, 200);
    cr_assert(strstr(a.head, "text/event-stream"));
    answer_free(&a);
    finish();
}

TestSuite(events_stop, .init = start, .timeout = 60);

Test(events_stop, ends_streams_in_order)
{
    run();
    int fd = get(own, "", SSE);
    read_stream(fd, "started");
    free(channel);
    rig_stop(&r);
    const char *text = read_stream(fd, NULL);
    cr_assert(strstr(text, ": the service is stopping\n\n"), "%s", text);
    close(fd);
}

Test(accept, which_form)
{
    static const struct {
        const char *header;
        bool events;
    } cases[] = {{NULL, false},
                 {"", false},
                 {"*/*", false},
                 {"text/*", false},
                 {"application/json", false},
                 {"text/event-stream", true},
                 {"TEXT/Event-Stream", true},
                 {"text/event-stream;charset=utf-8", true},
                 {" text/event-stream , */*", true},
                 {"text/event-stream2", false},
                 {"text/event", false},
                 {"text/html, text/event-stream;q=0.5, */*;q=0.1", true},
                 {"text/event-stream;q=0", false},
                 {"text/event-stream; q=0.000", false},
                 {"text/event-stream; Q=0.001", true},
                 {"application/json, text/event-stream", false},
                 {"text/event-stream, application/json", true},
                 {"application/json;q=0.9, text/event-stream", true},
                 {"application/json;q=0.9, text/event-stream;q=0.8", false},
                 {"application/json;q=0, text/event-stream;q=0.8", true},
                 {"text/event-stream;q", true},
                 {"text/event-stream;q=nonsense", true},
                 {",,,", false},
                 {";q=1", false}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        cr_expect_eq(accept_events(cases[i].header), cases[i].events, "%s", cases[i].header);
}
