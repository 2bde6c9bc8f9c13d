#include "rig.h"

#include "base/limits.h"

#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static struct rig r;
static char id[KEY_ID_SIZE], token[KEY_TOKEN_SIZE];

static void start(void)
{
    rig_start(&r, 0);
    rig_key(&r, SCOPE_TURNS | SCOPE_TURNS_READ | SCOPE_CHANNELS, "web:*", id, token);
    rig_channel(&r, "web:a", true);
    rig_channel(&r, "web:off", false);
    rig_channel(&r, "other:a", true);
}

static void stop(void)
{
    rig_stop(&r);
}

TestSuite(turns, .init = start, .fini = stop, .timeout = 60);

static int post(const char *extra, const char *body)
{
    return rig_send(&r, false, token, "POST", "/v1/turns", extra, body);
}

Test(turns, waits_for_the_end)
{
    char turn[TURN_ID_SIZE], path[80];
    int fd = post(NULL, "{\"channel\":\"web:a\",\"speaker\":{\"id\":\"u\",\"name\":\"n\"},\"text\":\"hi\","
                        "\"metadata\":{\"k\":\"v\"}}");

    rig_run_one(&r, "hello", turn);
    struct answer a = rig_receive(fd);
    cr_assert_eq(a.status, 200, "%s", a.head);
    cr_assert_str_eq(answer_str(&a, "id"), turn);
    cr_assert_str_eq(answer_str(&a, "object"), "turn");
    cr_assert_str_eq(answer_str(&a, "status"), "succeeded");
    cr_assert_str_eq(json_str(json_object_get(a.body, "reply"), "text"), "hello");
    cr_assert_str_eq(json_str(json_object_get(a.body, "metadata"), "k"), "v");
    cr_assert_str_eq(json_str(json_object_get(json_object_get(a.body, "logs"), "stderr"), "text"), "noise");
    cr_assert(json_is_null(json_object_get(a.body, "error")));
    answer_free(&a);

    snprintf(path, sizeof path, "/v1/turns/%s", turn);
    a = rig_call(&r, token, "GET", path, NULL);
    cr_assert_eq(a.status, 200);
    cr_assert_str_eq(answer_str(&a, "status"), "succeeded");
    answer_free(&a);
}

Test(turns, order_within_a_channel_is_order_of_arrival)
{
    char turn[TURN_ID_SIZE], text[32];
    int fds[20];

    for (int i = 0; i < 20; i++) {
        fds[i] = post(NULL, turn_body("web:a", "x"));
        rig_wait_queued(&r, (unsigned)i + 1);
    }
    for (int i = 0; i < 20; i++) {
        snprintf(text, sizeof text, "reply %d", i);
        rig_run_one(&r, text, turn);
        struct answer a = rig_receive(fds[i]);
        cr_assert_str_eq(json_str(json_object_get(a.body, "reply"), "text"), text);
        answer_free(&a);
    }
}

/* {body, status, code, what errors name} */
Test(turns, refuses)
{
    static const struct {
        const char *body;
        int status;
        const char *code, *pointer;
    } cases[] = {
        {"", 400, "invalid_json", NULL},
        {"{", 400, "invalid_json", NULL},
        {"{\"a\":1,\"a\":2}", 400, "invalid_json", NULL},
        {"[]", 422, "invalid", ""},
        {"{}", 422, "invalid", NULL},
        {"{\"channel\":\"web:a\",\"speaker\":{\"id\":\"u\",\"name\":\"n\"},\"text\":\"\"}", 422, "invalid",
         "/text"},
        {"{\"channel\":\"web:a\",\"speaker\":{\"id\":\"u\"},\"text\":\"x\"}", 422, "invalid", "/speaker"},
        {"{\"channel\":\"Web\",\"speaker\":{\"id\":\"u\",\"name\":\"n\"},\"text\":\"x\"}", 422, "invalid",
         "/channel"},
        {"{\"channel\":\"web:a\",\"speaker\":{\"id\":\"u\",\"name\":\"n\"},\"text\":\"x\",\"origin\":{\"is_"
         "direct\":true}}",
         422, "invalid", "/origin"},
        {"{\"channel\":\"web:a\",\"speaker\":{\"id\":\"u\",\"name\":\"n\"},\"text\":\"x\",\"colour\":1}", 422,
         "invalid", NULL},
        {"{\"channel\":\"web:off\",\"speaker\":{\"id\":\"u\",\"name\":\"n\"},\"text\":\"x\"}", 409,
         "channel_disabled", NULL},
        {"{\"channel\":\"web:never\",\"speaker\":{\"id\":\"u\",\"name\":\"n\"},\"text\":\"x\"}", 409,
         "channel_disabled", NULL},
        {"{\"channel\":\"other:a\",\"speaker\":{\"id\":\"u\",\"name\":\"n\"},\"text\":\"x\"}", 404,
         "not_found", NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct answer a = rig_receive(post(NULL, cases[i].body));
        cr_expect_eq(a.status, cases[i].status, "%s → %d", cases[i].body, a.status);
        cr_expect_str_eq(answer_str(&a, "code"), cases[i].code, "%s", cases[i].body);
        if (cases[i].pointer)
            cr_expect_str_eq(json_str(json_array_get(json_object_get(a.body, "errors"), 0), "pointer"),
                             cases[i].pointer, "%s", cases[i].body);
        cr_expect(a.status != 409 || strstr(a.head, "x-should-retry: false"), "%s", a.head);
        answer_free(&a);
    }
    cr_assert_eq(queue_waiting(r.queue), 0u);
}

Test(turns, tells_all_faults_at_once)
{
    struct answer a = rig_receive(post(NULL, "{\"channel\":1,\"speaker\":2,\"text\":3,\"reset\":4}"));
    cr_assert_eq(json_array_size(json_object_get(a.body, "errors")), 4u);
    answer_free(&a);
}

Test(turns, channel_key_over_200_bytes_but_not_characters)
{
    char key[512] = "web:";
    for (int i = 0; i < 120; i++)
        strcat(key, "\xc3\xa9");
    struct answer a = rig_receive(post(NULL, turn_body(key, "x")));
    cr_assert_eq(a.status, 422);
    cr_assert_str_eq(json_str(json_array_get(json_object_get(a.body, "errors"), 0), "pointer"), "/channel");
    answer_free(&a);
}

Test(turns, body_over_384_kib_is_413)
{
    char *body = malloc(LIMIT_TURN_BODY + 2);
    memset(body, ' ', LIMIT_TURN_BODY + 1);
    body[LIMIT_TURN_BODY + 1] = '\0';
    struct answer a = rig_receive(post(NULL, body));
    cr_assert_eq(a.status, 413);
    answer_free(&a);
    free(body);
}

/* 32,000 characters that take six bytes each in JSON, beside an prompt_text's prompt of `prompt` such
 * characters. */
static int status_with_prompt(size_t prompt)
{
    char *prompt_text = calloc(1, prompt + 1), *body = malloc(LIMIT_TURN_BODY), *p = body;

    memset(prompt_text, 1, prompt);
    r.config->model.prompt = prompt_text;
    p += sprintf(p, "{\"channel\":\"web:a\",\"speaker\":{\"id\":\"u\",\"name\":\"n\"},\"text\":\"");
    for (int i = 0; i < 32000; i++)
        p += sprintf(p, "\\u0001");
    strcpy(p, "\"}");
    struct answer a = rig_receive(post("Prefer: respond-async\r\n", body));
    int status = a.status;
    answer_free(&a);
    r.config->model.prompt = "";
    free(prompt_text);
    free(body);
    return status;
}

Test(turns, line_over_256_kib_is_422)
{
    cr_assert_eq(status_with_prompt(10000), 202);
    cr_assert_eq(status_with_prompt(12000), 422);
}

Test(turns, origin_decides)
{
    static const struct {
        bool bot, integration, direct, mentions, replies, runs;
    } cases[] = {
        {0, 0, 0, 1, 0, 1}, {0, 0, 0, 0, 1, 1}, {0, 0, 0, 1, 1, 1}, {0, 0, 0, 0, 0, 0},
        {1, 0, 0, 1, 1, 0}, {0, 1, 0, 1, 1, 0}, {0, 0, 1, 1, 1, 0}, {1, 1, 1, 0, 0, 0},
    };
    char body[512], turn[TURN_ID_SIZE];

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        snprintf(body, sizeof body,
                 "{\"channel\":\"web:a\",\"speaker\":{\"id\":\"u\",\"name\":\"n\"},\"text\":\"x\",\"origin\":"
                 "{\"author_is_bot\":%s,"
                 "\"integration\":%s,\"is_direct\":%s,\"mentions_bot\":%s,\"replies_to_bot\":%s}}",
                 cases[i].bot ? "true" : "false", cases[i].integration ? "true" : "false",
                 cases[i].direct ? "true" : "false", cases[i].mentions ? "true" : "false",
                 cases[i].replies ? "true" : "false");
        int fd = post(NULL, body);
        if (cases[i].runs)
            rig_run_one(&r, "ok", turn);
        struct answer a = rig_receive(fd);
        cr_expect_eq(a.status, 200);
        cr_expect_str_eq(answer_str(&a, "status"), cases[i].runs ? "succeeded" : "ignored");
        cr_expect_eq(queue_waiting(r.queue), 0u);
        answer_free(&a);
    }
    struct answer a = rig_receive(
        post(NULL, "{\"channel\":\"web:off\",\"speaker\":{\"id\":\"u\",\"name\":\"n\"},\"text\":\"x\","
                   "\"origin\":{\"author_is_bot\":true,\"integration\":true,\"is_direct\":true,"
                   "\"mentions_bot\":false,\"replies_to_bot\":false}}"));
    cr_assert_eq(a.status, 409); /* a disabled channel is refused first */
    answer_free(&a);
}

Test(turns, prefer)
{
    char turn[TURN_ID_SIZE];
    struct answer a = rig_receive(post("Prefer: respond-async\r\n", turn_body("web:a", "x")));

    cr_assert_eq(a.status, 202);
    cr_assert_str_eq(answer_str(&a, "status"), "queued");
    cr_assert(strstr(a.head, "Location: /v1/turns/turn_") && strstr(a.head, "Retry-After: ") &&
                  strstr(a.head, "Preference-Applied: respond-async\r\n") &&
                  strstr(a.head, "Vary: Accept, Prefer\r\n"),
              "%s", a.head);
    answer_free(&a);

    int64_t began = clock_mono_ms();
    a = rig_receive(post("Prefer: wait=1\r\n", turn_body("web:a", "x")));
    cr_assert_eq(a.status, 202);
    cr_assert(strstr(a.head, "Preference-Applied: wait\r\n"));
    cr_assert_geq(clock_mono_ms() - began, 990);
    answer_free(&a);

    /* Two lines are one list. (RFC 7240 section 2) */
    a = rig_receive(post("Prefer: handling=lenient\r\nprefer: respond-async\r\n", turn_body("web:a", "x")));
    cr_assert_eq(a.status, 202);
    cr_assert(strstr(a.head, "Preference-Applied: respond-async\r\n"));
    answer_free(&a);

    rig_run_one(&r, "one", turn);
    rig_run_one(&r, "two", turn);
    rig_run_one(&r, "three", turn);
    int fd = post("Prefer: respond-async, wait=20\r\n", turn_body("web:a", "x"));
    rig_run_one(&r, "four", turn);
    a = rig_receive(fd);
    cr_assert_eq(a.status, 200);
    answer_free(&a);
}

Test(turns, client_that_leaves_does_not_end_its_turn)
{
    char turn[TURN_ID_SIZE], path[80];
    int fd = post(NULL, turn_body("web:a", "x"));

    rig_wait_queued(&r, 1);
    close(fd);
    rig_run_one(&r, "late", turn);
    snprintf(path, sizeof path, "/v1/turns/%s", turn);
    struct answer a = rig_call(&r, token, "GET", path, NULL);
    cr_assert_str_eq(answer_str(&a, "status"), "succeeded");
    answer_free(&a);
}

Test(turns, disk_and_stop)
{
    r.no_room = true;
    struct answer a = rig_receive(post(NULL, turn_body("web:a", "x")));
    cr_assert_eq(a.status, 503);
    cr_assert_str_eq(answer_str(&a, "code"), "disk_full");
    cr_assert(strstr(a.head, "Retry-After: "));
    answer_free(&a);
    r.no_room = false;
    queue_close(r.queue);
    a = rig_receive(post(NULL, turn_body("web:a", "x")));
    cr_assert_eq(a.status, 503);
    cr_assert_str_eq(answer_str(&a, "code"), "draining");
    answer_free(&a);
}

Test(turns, revoked_key_ends_its_waits)
{
    char path[80];
    int fd = post(NULL, turn_body("web:a", "x"));

    rig_wait_queued(&r, 1);
    snprintf(path, sizeof path, "/v1/keys/%s", id);
    int64_t began = clock_mono_ms();
    struct answer a = rig_admin(&r, "DELETE", path, NULL);
    cr_assert_eq(a.status, 204);
    answer_free(&a);
    a = rig_receive(fd);
    cr_assert_eq(a.status, 401);
    cr_assert(strstr(a.head, "WWW-Authenticate: Bearer"));
    cr_assert_lt(clock_mono_ms() - began, 1000);
    answer_free(&a);
    a = rig_call(&r, token, "GET", "/v1/channels", NULL);
    cr_assert_eq(a.status, 401);
    answer_free(&a);
}

Test(full, bounds_of_the_queue, .timeout = 60)
{
    rig_start(&r, 2);
    rig_key(&r, SCOPE_TURNS, "*", id, token);
    rig_channel(&r, "web:a", true);
    rig_channel(&r, "web:b", true);
    rig_channel(&r, "web:c", true);
    static const char *const channels[] = {"web:a", "web:a", "web:a", "web:b", "web:b", "web:c"};
    static const int statuses[] = {202, 202, 429, 202, 202, 429};
    for (size_t i = 0; i < ARRAY_LEN(channels); i++) {
        struct answer a = rig_receive(post("Prefer: respond-async\r\n", turn_body(channels[i], "x")));
        cr_expect_eq(a.status, statuses[i], "%zu: %d", i, a.status);
        cr_expect(a.status != 429 || strstr(a.head, "Retry-After: "));
        answer_free(&a);
    }
    rig_stop(&r);
}

#define MANY 300

Test(full, three_hundred_wait_and_the_stop_answers_them, .timeout = 60)
{
    static int fds[MANY];
    char channel[32];

    rig_start(&r, 0);
    rig_key(&r, SCOPE_TURNS, "*", id, token);
    for (int i = 0; i < 10; i++) {
        snprintf(channel, sizeof channel, "web:c%d", i);
        rig_channel(&r, channel, true);
    }
    for (int i = 0; i < MANY; i++) {
        snprintf(channel, sizeof channel, "web:c%d", i % 10);
        fds[i] = post(NULL, turn_body(channel, "x"));
    }
    rig_wait_queued(&r, MANY);
    char turn[TURN_ID_SIZE];
    for (int i = 0; i < 100; i++)
        rig_run_one(&r, "done", turn);
    rig_stop(&r);
    int done = 0, accepted = 0;
    for (int i = 0; i < MANY; i++) {
        struct answer a = rig_receive(fds[i]);
        done += a.status == 200;
        accepted += a.status == 202;
        answer_free(&a);
    }
    cr_assert_eq(done, 100);
    cr_assert_eq(accepted, 200);
}
