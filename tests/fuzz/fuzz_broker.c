/* Whole requests at a bound broker with embedded:echo: its answers are HTTP with statuses and words of one
 * table, a sound request is answered once and with the guest's own message, and neither the credential nor
 * anything of the host is ever said. The credential is one that the fuzzer can see: when the guest says it,
 * it still must not come back. */
#include "support/fuzz.h"
#include "support/wire.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/proc.h"
#include "broker/broker.h"
#include "schemas/model_input.h"
#include "upstream/client.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define KEY   "sk-Fuzz/0123+abcdef~Z"
#define CALLS 1000

static struct broker_env *env;
static struct broker *broker;
static char path[128], container[128];
static const char *folder;

static void open_broker(void)
{
    struct broker_turn turn = {.turn_id = "turn_1", .container_id = container, .traceparent = ""};
    struct err err = {0};

    broker_free(STEAL(broker));
    PROPERTY(broker_new(env, folder, &broker, &err) == 0, "%s", err.text);
    turn.deadline = clock_mono_ms() + 24LL * 3600 * 1000;
    PROPERTY(broker_bind(broker, &turn, &err) == 0, "%s", err.text);
}

static void stop(void)
{
    broker_free(broker);
    broker_env_free(env);
}

/* Something that the kernel says of this process's cgroup on any machine. */
static void own_cgroup(void)
{
    FILE *f = fopen("/proc/self/cgroup", "re");

    PROPERTY(f && fgets(container, sizeof container, f), "no cgroup");
    container[strcspn(container, "\n")] = '\0';
    fclose(f);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct broker_settings settings = {
        .model_url = "embedded:echo", .model_name = "m", .max_tokens = 1, .max_calls = CALLS};
    struct err err = {0};

    (void)argc;
    (void)argv;
    signal(SIGPIPE, SIG_IGN);
    log_set_level(LOG_ERROR);
    own_cgroup();
    folder = fuzz_folder();
    snprintf(path, sizeof path, "%s/broker.sock", folder);
    PROPERTY(secret_init(&err) == 0 && upstream_global_init(&err) == 0 &&
                 credential_from_value("K", KEY, &settings.credential, &err) == 0 &&
                 broker_env_new(&settings, &env, &err) == 0,
             "%s", err.text);
    open_broker();
    atexit(stop);
    return 0;
}

/* --- what comes back ------------------------------------------------------------------------------------ */

static const struct {
    int status;
    const char *code; /* NULL: the library's own page */
} known[] = {
    {400, "invalid_json"},
    {403, "forbidden"},
    {404, "not_found"},
    {413, "body_too_large"},
    {415, "unsupported_media_type"},
    {422, "invalid"},
    {429, "call_in_flight"},
    {429, "budget_spent"},
    {502, "model_refused"},
    {400, NULL},
    {405, NULL},
    {413, NULL},
    {414, NULL},
    {431, NULL},
    {501, NULL},
    {505, NULL},
};

static void check_error(const struct wire_answer *a)
{
    CLEANUP(free_str) char *type = wire_field(a, "content-type");
    CLEANUP(json_free) json_t *body = NULL;
    const char *code = NULL;
    bool is_known = false;

    if (a->body_len == 0)
        return; /* to a HEAD */
    if (type && strcmp(type, "application/json") == 0) {
        body = fuzz_json(a->body, a->body_len);
        code = json_str(json_object_get(body, "error"), "code");
        PROPERTY(code && json_str(json_object_get(body, "error"), "message"), "no error: %.*s",
                 (int)a->body_len, a->body);
    }
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        is_known =
            is_known || (known[i].status == a->status &&
                         (code ? known[i].code && strcmp(known[i].code, code) == 0 : known[i].code == NULL));
    PROPERTY(is_known, "status %d: %.*s", a->status, (int)(a->head_len + 4 + a->body_len), a->head);
}

static const char *last_user(const json_t *messages)
{
    const char *said = "";
    json_t *message;
    size_t i;

    json_array_foreach(messages, i, message) {
        if (strcmp(json_str(message, "role"), "user") == 0)
            said = json_str(message, "content");
    }
    return said;
}

/* A sound request against its answer: 200 exactly where the body keeps the rules and does not have the
 * credential. */
static void check_echo(const struct wire_request *req, const struct wire_answer *a)
{
    CLEANUP(json_free) json_t *body = fuzz_json(req->body ? req->body : "", req->body_len);
    CLEANUP(json_free) json_t *messages = NULL;
    CLEANUP(json_free) json_t *tools = NULL;
    CLEANUP(json_faults_free) struct json_faults faults = {0};
    bool sound = body && model_input(body, "", &messages, &tools, &faults) == 0;

    if ((a->status == 400 && a->body[0] == '{') || a->status == 422) /* else the library's own page */
        PROPERTY(!sound && (a->status == 400) == !body, "status %d for %s", a->status, req->body);
    if (a->status != 200)
        return;
    PROPERTY(sound && strcmp(req->method, "POST") == 0 && req->target_len == 6 &&
                 memcmp(req->target, "/model", 6) == 0 && req->body_len <= LIMIT_BROKER_BODY,
             "200 for %s %.*s", req->method, (int)req->target_len, req->target);
    CLEANUP(json_free) json_t *answer = fuzz_json(a->body, a->body_len);
    const json_t *choice = json_array_get(json_object_get(answer, "choices"), 0);
    const char *content = json_str(json_object_get(choice, "message"), "content");
    PROPERTY(content && strcmp(content, last_user(messages)) == 0, "the echo says something else: %.*s",
             (int)a->body_len, a->body);
    PROPERTY(!strstr(content, KEY), "the credential comes through");
}

/* The guest's own words come back in pointers of errors; all else is from a table. */
static void check_silence(const struct wire_answer *a, const char *sent)
{
    static const char *const words[] = {"/dev/shm",  "/tmp",   "cloister", "embedded",
                                        "127.0.0.1", "turn_1", KEY};

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        PROPERTY(!memmem(a->head, a->head_len + 4 + a->body_len, words[i], strlen(words[i])) ||
                     strstr(sent, words[i]) || a->status == 422,
                 "it says %s: %.*s", words[i], (int)(a->head_len + 4 + a->body_len), a->head);
}

static void check_all(const char *text, const struct wire_stream *sent, const struct wire_answers *got)
{
    for (size_t i = 0; i < got->count; i++) {
        const struct wire_answer *a = &got->list[i];
        check_silence(a, text);
        if (a->status >= 300)
            check_error(a);
        else
            PROPERTY(a->status == 200, "status %d", a->status);
        if (i < sent->count)
            check_echo(&sent->list[i], a);
        PROPERTY(i < sent->count || sent->tail != WIRE_END, "%zu answers to %zu requests", got->count,
                 sent->count);
    }
    PROPERTY(!got->doubled || got->list[got->count - 1].body_len == 0 ||
                 strncmp(got->list[got->count - 1].body, "<html>", 6) == 0,
             "a head came twice");
    const struct wire_answer *last = got->count > 0 ? &got->list[got->count - 1] : NULL;
    PROPERTY(got->count >= sent->count || (last && (last->close || sent->list[got->count - 1].close)),
             "%zu answers to %zu requests", got->count, sent->count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    uint8_t how = fuzz_byte(&in);
    const struct wire_manner manner = {.polite = how & 2, .split = how / 4 * 16u};
    CLEANUP(free_str) char *text = fuzz_text(in.data, in.size);
    CLEANUP(wire_free) struct wire_stream sent;
    CLEANUP(wire_answers_free) struct wire_answers got;
    struct broker_stats stats;

    wire_read(text, in.size, &sent);
    wire_talk(&(struct wire_place){.path = path}, text, in.size, &manner, &sent, &got);
    check_all(text, &sent, &got);
    broker_stats(broker, &stats);
    PROPERTY(!stats.budget_spent, "the budget is spent after %u calls", stats.calls);
    if (stats.calls > CALLS - WIRE_ANSWERS)
        open_broker();
    return 0;
}
