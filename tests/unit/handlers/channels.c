#include "rig.h"

#include <stdio.h>
#include <unistd.h>

static struct rig r;
static char id[KEY_ID_SIZE], token[KEY_TOKEN_SIZE];

static void start(void)
{
    rig_start(&r, 0);
    rig_key(&r, SCOPE_CHANNELS | SCOPE_TURNS, "web:*", id, token);
}

static void stop(void)
{
    rig_stop(&r);
}

TestSuite(channels, .init = start, .fini = stop, .timeout = 60);

static struct answer call(const char *method, const char *path, const char *extra, const char *body)
{
    return rig_receive(rig_send(&r, false, token, method, path, extra, body));
}

static void tag_of(const struct answer *a, char *out, size_t size)
{
    const char *at = strstr(a->head, "ETag: ");
    cr_assert(at);
    snprintf(out, size, "%.*s", (int)strcspn(at + 6, "\r"), at + 6);
}

static void expect(int status, const char *method, const char *path, const char *extra, const char *body)
{
    struct answer a = call(method, path, extra, body);
    cr_expect_eq(a.status, status, "%s %s %s %s → %d", method, path, extra ? extra : "", body ? body : "",
                 a.status);
    answer_free(&a);
}

Test(channels, life_of_one)
{
    char first[64], second[64], extra[128];

    expect(404, "GET", "/v1/channels/web:a", NULL, NULL);
    struct answer a = call("PUT", "/v1/channels/web:a", NULL, "{\"enabled\":true}");
    cr_assert_eq(a.status, 201);
    cr_assert_str_eq(answer_str(&a, "key"), "web:a");
    cr_assert(json_is_true(json_object_get(a.body, "enabled")));
    cr_assert(json_is_false(json_object_get(a.body, "busy")));
    tag_of(&a, first, sizeof first);
    answer_free(&a);

    a = call("PUT", "/v1/channels/web:a", NULL, "{\"enabled\":false}");
    cr_assert_eq(a.status, 200);
    tag_of(&a, second, sizeof second);
    cr_assert_str_neq(first, second);
    answer_free(&a);

    snprintf(extra, sizeof extra, "If-Match: %s\r\n", first);
    expect(412, "PUT", "/v1/channels/web:a", extra, "{\"enabled\":true}");
    expect(412, "DELETE", "/v1/channels/web:a", extra, NULL);
    expect(412, "POST", "/v1/channels/web:a/reset", extra, NULL);
    expect(412, "PUT", "/v1/channels/web:a", "If-None-Match: *\r\n", "{\"enabled\":true}");
    expect(412, "PUT", "/v1/channels/web:b", "If-Match: *\r\n", "{\"enabled\":true}");
    snprintf(extra, sizeof extra, "If-Match: \"x\", %s\r\n", second);
    expect(200, "PUT", "/v1/channels/web:a", extra, "{\"enabled\":true}");

    a = call("POST", "/v1/channels/web:a/reset", NULL, NULL);
    cr_assert_eq(a.status, 200);
    cr_assert(json_is_true(json_object_get(a.body, "reset_pending")));
    answer_free(&a);
    a = call("POST", "/v1/channels/web:a/stop", NULL, NULL);
    cr_assert_eq(a.status, 200);
    cr_assert(json_is_true(json_object_get(a.body, "stopped")));
    cr_assert_str_eq(r.stopped, "web:a");
    answer_free(&a);

    expect(204, "DELETE", "/v1/channels/web:a", NULL, NULL);
    expect(404, "DELETE", "/v1/channels/web:a", NULL, NULL);
    expect(404, "POST", "/v1/channels/web:a/reset", NULL, NULL);
    expect(404, "POST", "/v1/channels/web:a/stop", NULL, NULL);
    expect(412, "DELETE", "/v1/channels/web:a", "If-Match: *\r\n", NULL);
}

Test(channels, key_made_anew_has_another_tag)
{
    char tag[64], extra[96];
    struct answer a = call("PUT", "/v1/channels/web:a", NULL, "{\"enabled\":true}");

    tag_of(&a, tag, sizeof tag);
    answer_free(&a);
    expect(204, "DELETE", "/v1/channels/web:a", NULL, NULL);
    clock_sleep_ms(2); /* the tag holds the millisecond of making */
    expect(201, "PUT", "/v1/channels/web:a", NULL, "{\"enabled\":true}");
    snprintf(extra, sizeof extra, "If-Match: %s\r\n", tag);
    expect(412, "DELETE", "/v1/channels/web:a", extra, NULL);
}

Test(channels, bodies_and_keys)
{
    expect(422, "PUT", "/v1/channels/web:a", NULL, "{}");
    expect(422, "PUT", "/v1/channels/web:a", NULL, "{\"enabled\":1}");
    expect(422, "PUT", "/v1/channels/web:a", NULL, "{\"enabled\":true,\"x\":1}");
    expect(400, "PUT", "/v1/channels/web:a", NULL, NULL);
    expect(422, "PUT", "/v1/channels/Web:a", NULL, "{\"enabled\":true}");
    expect(422, "PUT", "/v1/channels/web", NULL, "{\"enabled\":true}");
    expect(422, "PUT", "/v1/channels/web:%0a", NULL, "{\"enabled\":true}");
    expect(400, "PUT", "/v1/channels/web:%00", NULL, "{\"enabled\":true}");
    expect(404, "PUT", "/v1/channels/other:a", NULL, "{\"enabled\":true}");
    expect(201, "PUT", "/v1/channels/web:a%2Freset", NULL, "{\"enabled\":true}");
    expect(200, "GET", "/v1/channels/web%3Aa%2freset", NULL, NULL);
    expect(405, "PATCH", "/v1/channels/web:a", NULL, NULL);
}

Test(channels, delete_cancels_what_waits_and_refuses_what_runs)
{
    char turn[TURN_ID_SIZE];
    char *channel = NULL;

    expect(201, "PUT", "/v1/channels/web:a", NULL, "{\"enabled\":true}");
    int running = rig_send(&r, false, token, "POST", "/v1/turns", NULL, turn_body("web:a", "x"));
    rig_begin_one(&r, turn, &channel);
    int waiting = rig_send(&r, false, token, "POST", "/v1/turns", NULL, turn_body("web:a", "y"));
    rig_wait_queued(&r, 1);
    struct answer a = call("GET", "/v1/channels/web:a", NULL, NULL);
    cr_assert(json_is_true(json_object_get(a.body, "busy")));
    cr_assert_eq(json_integer_value(json_object_get(a.body, "queued")), 1);
    answer_free(&a);
    expect(409, "DELETE", "/v1/channels/web:a", NULL, NULL);
    rig_end(&r, turn, channel, "ok");
    free(channel);
    a = rig_receive(running);
    cr_assert_eq(a.status, 200);
    answer_free(&a);
    expect(204, "DELETE", "/v1/channels/web:a", NULL, NULL);
    a = rig_receive(waiting);
    cr_assert_eq(a.status, 200);
    cr_assert_str_eq(answer_str(&a, "status"), "canceled");
    cr_assert_str_eq(json_str(json_object_get(a.body, "error"), "code"), "canceled");
    answer_free(&a);
    cr_assert_eq(queue_waiting(r.queue), 0u);
}

Test(channels, list_in_pages_of_what_the_key_may_see)
{
    char key[64], path[512] = "/v1/channels?limit=3";
    int seen = 0, pages = 0;

    for (int i = 0; i < 10; i++) {
        snprintf(key, sizeof key, "web:c%02d", i);
        rig_channel(&r, key, i % 2 == 0);
        snprintf(key, sizeof key, "other:c%02d", i);
        rig_channel(&r, key, true);
    }
    while (path[0]) {
        struct answer a = call("GET", path, NULL, NULL);
        cr_assert_eq(a.status, 200);
        size_t i;
        json_t *c;
        json_array_foreach(json_object_get(a.body, "data"), i, c) {
            snprintf(key, sizeof key, "web:c%02d", seen++);
            cr_assert_str_eq(json_str(c, "key"), key);
        }
        const char *next = json_str(a.body, "next_cursor");
        cr_assert_eq(json_is_true(json_object_get(a.body, "has_more")), next != NULL);
        path[0] = '\0';
        if (next)
            snprintf(path, sizeof path, "/v1/channels?limit=3&cursor=%s", next);
        pages++;
        answer_free(&a);
    }
    cr_assert_eq(seen, 10);
    cr_assert_eq(pages, 4);
    expect(400, "GET", "/v1/channels?limit=0", NULL, NULL);
    expect(400, "GET", "/v1/channels?limit=201", NULL, NULL);
    expect(400, "GET", "/v1/channels?limit=x", NULL, NULL);
    expect(400, "GET", "/v1/channels?cursor=zz", NULL, NULL);
    expect(400, "GET", "/v1/channels?cursor=00", NULL, NULL);
    expect(400, "GET", "/v1/channels?key=clo_x", NULL, NULL);
}

Test(channels, says_when_blocked)
{
    rig_channel(&r, "web:a", true);
    r.blocked = true;
    struct answer a = call("GET", "/v1/channels/web:a", NULL, NULL);
    cr_assert(json_is_true(json_object_get(a.body, "blocked")));
    answer_free(&a);
}
