/* Idempotency keys, lists and cancels over real sockets. */
#include "rig.h"

#include "handlers/idempotent.h"

#include <stdio.h>

static struct rig r;
static char id[KEY_ID_SIZE], token[KEY_TOKEN_SIZE];

static void setup(void)
{
    rig_start(&r, 0);
    rig_key(&r, SCOPE_TURNS | SCOPE_TURNS_READ, "web:*", id, token);
    rig_channel(&r, "web:a", true);
    rig_channel(&r, "web:b", true);
}

static void teardown(void)
{
    rig_stop(&r);
}

TestSuite(async, .init = setup, .fini = teardown);

static struct answer post(const char *who, const char *headers, const char *body)
{
    return rig_receive(rig_send(&r, false, who, "POST", "/v1/turns", headers, body));
}

Test(async, same_key_and_body_is_one_turn)
{
    const char *headers = "Prefer: respond-async\r\nIdempotency-Key: \"a-1\"\r\n";
    struct answer first = post(token, headers, turn_body("web:a", "x"));
    cr_assert_eq(first.status, 202);
    cr_assert_not(strstr(first.head, "Idempotent-Replayed"));

    /* also when it could not be accepted any more */
    rig_channel(&r, "web:a", false);
    struct answer again =
        post(token, "Prefer: respond-async\r\nIdempotency-Key: a-1\r\n", turn_body("web:a", "x"));
    cr_assert_eq(again.status, 202);
    cr_assert(strstr(again.head, "Idempotent-Replayed: true"));
    cr_assert_str_eq(answer_str(&first, "id"), answer_str(&again, "id"));

    struct answer other = post(token, headers, turn_body("web:a", "y"));
    cr_assert_eq(other.status, 422);
    /* another API key has names of its own */
    char id2[KEY_ID_SIZE], token2[KEY_TOKEN_SIZE];
    rig_key(&r, SCOPE_TURNS, "web:*", id2, token2);
    struct answer foreign = post(token2, headers, turn_body("web:b", "x"));
    cr_assert_eq(foreign.status, 202);
    cr_assert_str_neq(answer_str(&first, "id"), answer_str(&foreign, "id"));
    rig_wait_queued(&r, 2);
    answer_free(&first);
    answer_free(&again);
    answer_free(&other);
    answer_free(&foreign);
}

Test(async, what_was_refused_stores_no_name)
{
    struct answer bad = post(token, "Idempotency-Key: b\r\n", "{\"channel\":\"web:a\"}");
    cr_assert_eq(bad.status, 422);
    struct answer good =
        post(token, "Prefer: respond-async\r\nIdempotency-Key: b\r\n", turn_body("web:a", "x"));
    cr_assert_eq(good.status, 202);
    answer_free(&bad);
    answer_free(&good);
}

Test(async, names_have_a_form)
{
    static const char *const bad[] = {"Idempotency-Key: \"\"\r\n", "Idempotency-Key: a\"b\r\n"};
    char long_name[300];
    struct err err;
    char got[IDEMPOTENCY_NAME_MAX + 1];

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct answer a = post(token, bad[i], turn_body("web:a", "x"));
        cr_assert_eq(a.status, 400, "%s", bad[i]);
        answer_free(&a);
    }
    memset(long_name, 'n', 256);
    long_name[256] = '\0';
    cr_assert_eq(idempotent_name(long_name, got, &err), -1);
    cr_assert_eq(idempotent_name(long_name + 1, got, &err), 0);
    cr_assert_eq(idempotent_name("\"x y\"", got, &err), 0);
    cr_assert_str_eq(got, "x y");
    cr_assert_eq(idempotent_name(NULL, got, &err), 0);
    cr_assert_str_eq(got, "");
}

static void submit(const char *channel, char out[TURN_ID_SIZE])
{
    struct answer a = post(token, "Prefer: respond-async\r\n", turn_body(channel, "x"));
    cr_assert_eq(a.status, 202);
    snprintf(out, TURN_ID_SIZE, "%s", answer_str(&a, "id"));
    answer_free(&a);
}

Test(async, lists_page_and_filter)
{
    char ids[4][TURN_ID_SIZE], path[300];

    for (int i = 0; i < 4; i++)
        submit(i % 2 ? "web:b" : "web:a", ids[i]);
    struct answer page = rig_call(&r, token, "GET", "/v1/turns?limit=3", NULL);
    cr_assert_eq(page.status, 200);
    json_t *data = json_object_get(page.body, "data");
    cr_assert_eq(json_array_size(data), 3);
    cr_assert_str_eq(json_str(json_array_get(data, 0), "id"), ids[3]);
    snprintf(path, sizeof path, "/v1/turns?limit=3&cursor=%s", answer_str(&page, "next_cursor"));
    struct answer next = rig_call(&r, token, "GET", path, NULL);
    data = json_object_get(next.body, "data");
    cr_assert_eq(json_array_size(data), 1);
    cr_assert_str_eq(json_str(json_array_get(data, 0), "id"), ids[0]);
    cr_assert(json_is_false(json_object_get(next.body, "has_more")));
    struct answer some =
        rig_call(&r, token, "GET", "/v1/turns?channel=web:b&status=queued&since=2020-01-01T00:00:00Z", NULL);
    cr_assert_eq(json_array_size(json_object_get(some.body, "data")), 2);
    struct answer none = rig_call(&r, token, "GET", "/v1/turns?until=2020-01-01T00:00:00%2B01:00", NULL);
    cr_assert_eq(json_array_size(json_object_get(none.body, "data")), 0);
    answer_free(&page);
    answer_free(&next);
    answer_free(&some);
    answer_free(&none);
    static const char *const bad[] = {"status=waiting", "since=yesterday", "limit=0",
                                      "cursor=zz",      "cursor=6161",     "who=me"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        snprintf(path, sizeof path, "/v1/turns?%s", bad[i]);
        struct answer a = rig_call(&r, token, "GET", path, NULL);
        cr_assert_eq(a.status, 400, "%s", bad[i]);
        answer_free(&a);
    }
}

Test(async, lists_show_a_key_its_own)
{
    char mine[TURN_ID_SIZE], id2[KEY_ID_SIZE], token2[KEY_TOKEN_SIZE];

    submit("web:a", mine);
    rig_key(&r, SCOPE_TURNS, "web:*", id2, token2);
    struct answer others = rig_call(&r, token2, "GET", "/v1/turns", NULL);
    cr_assert_eq(others.status, 200);
    cr_assert_eq(json_array_size(json_object_get(others.body, "data")), 0);
    answer_free(&others);
    rig_key(&r, SCOPE_TURNS_READ, "else:*", id2, token2);
    others = rig_call(&r, token2, "GET", "/v1/turns", NULL);
    cr_assert_eq(json_array_size(json_object_get(others.body, "data")), 0);
    answer_free(&others);
}

static struct answer cancel(const char *who, const char *turn)
{
    char path[128];

    snprintf(path, sizeof path, "/v1/turns/%s/cancel", turn);
    return rig_call(&r, who, "POST", path, NULL);
}

Test(async, cancel_of_a_waiting_turn)
{
    char turn[TURN_ID_SIZE], id2[KEY_ID_SIZE], token2[KEY_TOKEN_SIZE];

    submit("web:a", turn);
    rig_key(&r, SCOPE_TURNS | SCOPE_TURNS_READ, "web:*", id2, token2);
    struct answer foreign = cancel(token2, turn);
    cr_assert_eq(foreign.status, 403, "it may see, not cancel");
    struct answer a = cancel(token, turn);
    cr_assert_eq(a.status, 200);
    cr_assert_str_eq(answer_str(&a, "status"), "canceled");
    rig_wait_queued(&r, 0);
    struct answer again = cancel(token, turn);
    cr_assert_eq(again.status, 200);
    struct answer unknown = cancel(token, "turn_none");
    cr_assert_eq(unknown.status, 404);
    answer_free(&foreign);
    answer_free(&a);
    answer_free(&again);
    answer_free(&unknown);
}

Test(async, cancel_of_a_running_turn_waits_for_its_death)
{
    char turn[TURN_ID_SIZE], path[128];
    char *channel = NULL;

    submit("web:a", turn);
    rig_begin_one(&r, turn, &channel);
    atomic_store(&r.alive, true);
    snprintf(path, sizeof path, "/v1/turns/%s/cancel", turn);
    int fd = rig_send(&r, false, token, "POST", path, NULL, NULL);
    int64_t deadline = clock_mono_ms() + 10000;
    while (strcmp(r.canceled, turn) != 0 && clock_mono_ms() < deadline)
        clock_sleep_ms(2);
    cr_assert_str_eq(r.canceled, turn);
    rig_end(&r, turn, channel, "too late");
    free(channel);
    atomic_store(&r.alive, false);
    bus_publish(r.bus, turn);
    struct answer a = rig_receive(fd);
    cr_assert_eq(a.status, 200);
    cr_assert_str_neq(answer_str(&a, "cancel_requested_at"), "");
    answer_free(&a);
}

Test(async, limits_only_lower)
{
    struct answer a = post(token, NULL,
                           "{\"channel\":\"web:a\",\"speaker\":{\"id\":\"1\",\"name\":\"A\"},\"text\":\"t\","
                           "\"limits\":{\"timeout_ms\":600000,\"pids\":8,\"memory_mb\":100000}}");
    cr_assert_eq(a.status, 422);
    json_t *errors = json_object_get(a.body, "errors");
    cr_assert_eq(json_array_size(errors), 2);
    cr_assert_str_eq(json_str(json_array_get(errors, 0), "pointer"), "/limits/timeout_ms");
    cr_assert_str_eq(json_str(json_array_get(errors, 1), "pointer"), "/limits/memory_mb");
    answer_free(&a);
}
