/* Every route × scope × foreign channel, and the admin socket. */
#include "rig.h"

#include "config/yaml.h"
#include "handlers/openapi.h"
#include "handlers/resources.h"

#include <stdio.h>
#include <unistd.h>

static struct rig r;

static void start(void)
{
    rig_start(&r, 0);
    rig_channel(&r, "web:a", true);
    rig_channel(&r, "foreign:a", true);
}

static void stop(void)
{
    rig_stop(&r);
}

TestSuite(access, .init = start, .fini = stop, .timeout = 60);

/* The body that would be right for the route and channel. */
static const char *body_for(const struct http_route *route, const char *channel)
{
    if (route->handler == turns_create)
        return turn_body(channel, "x");
    return route->body_limit > 0 ? "{\"enabled\":true}" : NULL;
}

static void fill_path(const char *pattern, const char *value, char out[256])
{
    const char *open = strchr(pattern, '{'), *close = open ? strchr(open, '}') : NULL;

    if (open)
        snprintf(out, 256, "%.*s%s%s", (int)(open - pattern), pattern, value, close + 1);
    else
        snprintf(out, 256, "%s", pattern);
}

Test(access, every_route_and_scope)
{
    static const unsigned scopes[] = {SCOPE_TURNS, SCOPE_TURNS_READ, SCOPE_CHANNELS, SCOPE_FILES,
                                      SCOPE_ADMIN};
    char id[KEY_ID_SIZE], token[KEY_TOKEN_SIZE], path[256], turn[64];

    /* A turn of the administrator in a foreign channel. */
    struct answer made = rig_receive(rig_send(&r, true, NULL, "POST", "/v1/turns",
                                              "Prefer: respond-async\r\n", turn_body("foreign:a", "x")));
    cr_assert_eq(made.status, 202);
    snprintf(turn, sizeof turn, "%s", answer_str(&made, "id"));
    answer_free(&made);

    for (size_t s = 0; s < ARRAY_LEN(scopes); s++) {
        rig_key(&r, scopes[s], "web:*", id, token);
        for (const struct http_route *route = service_routes; route->method; route++) {
            bool about_turn = strncmp(route->path, "/v1/turns/{id}", 14) == 0;
            bool foreign_possible = strstr(route->path, "{") || route->handler == turns_create;
            fill_path(route->path, about_turn ? turn : "foreign:a", path);
            const char *body = body_for(route, "foreign:a");
            int want = 200;
            if (route->scope != 0) {
                struct answer none = rig_call(&r, NULL, route->method, path, body);
                cr_expect_eq(none.status, 401, "%s %s without a key → %d", route->method, path, none.status);
                cr_expect(strstr(none.head, "WWW-Authenticate: Bearer"));
                answer_free(&none);
                want = !(scopes[s] & (route->scope | SCOPE_ADMIN)) ? 403 : foreign_possible ? 404 : 200;
            }
            struct answer a = rig_call(&r, token, route->method, path, body);
            cr_expect_eq(a.status, want, "scope %u: %s %s → %d, not %d", scopes[s], route->method, path,
                         a.status, want);
            answer_free(&a);
        }
    }
}

Test(access, turns_of_others)
{
    char id[KEY_ID_SIZE], mine[KEY_TOKEN_SIZE], other[KEY_TOKEN_SIZE], reader[KEY_TOKEN_SIZE], path[80];

    rig_key(&r, SCOPE_TURNS, "web:*", id, mine);
    rig_key(&r, SCOPE_TURNS, "web:*", id, other);
    rig_key(&r, SCOPE_TURNS_READ, "web:*", id, reader);
    int fd = rig_send(&r, false, mine, "POST", "/v1/turns", NULL, turn_body("web:a", "x"));
    char turn[TURN_ID_SIZE];
    rig_run_one(&r, "ok", turn);
    struct answer a = rig_receive(fd);
    cr_assert_null(json_object_get(a.body, "logs")); /* logs need turns:read */
    answer_free(&a);
    snprintf(path, sizeof path, "/v1/turns/%s", turn);
    a = rig_call(&r, mine, "GET", path, NULL);
    cr_assert_eq(a.status, 200);
    answer_free(&a);
    a = rig_call(&r, other, "GET", path, NULL);
    cr_assert_eq(a.status, 404);
    answer_free(&a);
    a = rig_call(&r, reader, "GET", path, NULL);
    cr_assert_eq(a.status, 200);
    cr_assert_str_eq(json_str(json_object_get(json_object_get(a.body, "logs"), "stderr"), "text"), "noise");
    answer_free(&a);
}

Test(access, bad_keys)
{
    char id[KEY_ID_SIZE], token[KEY_TOKEN_SIZE], bad[KEY_TOKEN_SIZE + 8];

    rig_key(&r, SCOPE_ADMIN, "*", id, token);
    for (size_t i = 0; i < 4; i++) {
        snprintf(bad, sizeof bad, "%s%s", token, i == 3 ? "0" : "");
        size_t at = i == 0 ? 5 : i == 1 ? strlen(token) - 1 : 1;
        if (i < 3)
            bad[at] = bad[at] == '0' ? '1' : '0';
        struct answer a = rig_call(&r, bad, "GET", "/v1/channels", NULL);
        cr_expect_eq(a.status, 401, "%s", bad);
        answer_free(&a);
    }
    struct answer a = rig_call(&r, token, "GET", "/v1/channels", NULL);
    cr_assert_eq(a.status, 200);
    answer_free(&a);
}

Test(access, keys_are_made_on_the_admin_socket_only)
{
    char id[KEY_ID_SIZE], token[KEY_TOKEN_SIZE], path[80];
    static const char body[] =
        "{\"name\":\"n\",\"scopes\":[\"turns\",\"channels\"],\"channels\":[\"web:*\"]}";

    rig_key(&r, SCOPE_ADMIN, "*", id, token);
    struct answer a = rig_call(&r, token, "POST", "/v1/keys", body);
    cr_assert_eq(a.status, 404);
    answer_free(&a);
    a = rig_admin(&r, "POST", "/v1/keys", body);
    cr_assert_eq(a.status, 201);
    struct answer used = rig_call(&r, answer_str(&a, "key"), "GET", "/v1/channels", NULL);
    cr_assert_eq(used.status, 200);
    answer_free(&used);
    snprintf(path, sizeof path, "/v1/keys/%s", answer_str(&a, "id"));

    struct answer list = rig_admin(&r, "GET", "/v1/keys", NULL);
    cr_assert_eq(json_array_size(json_object_get(list.body, "data")), 2u);
    char *text = json_dumps(list.body, 0);
    cr_assert_null(strstr(text, "clo_"));
    free(text);
    answer_free(&list);

    struct answer revoked = rig_admin(&r, "DELETE", path, NULL);
    cr_assert_eq(revoked.status, 204);
    answer_free(&revoked);
    used = rig_call(&r, answer_str(&a, "key"), "GET", "/v1/channels", NULL);
    cr_assert_eq(used.status, 401);
    answer_free(&used);
    answer_free(&a);

    static const struct {
        const char *method, *path, *body;
        int status;
    } cases[] = {
        {"POST", "/v1/keys", "{\"name\":\"\",\"scopes\":[\"turns\"],\"channels\":[\"*\"]}", 422},
        {"POST", "/v1/keys", "{\"name\":\"n\",\"scopes\":[],\"channels\":[\"*\"]}", 422},
        {"POST", "/v1/keys", "{\"name\":\"n\",\"scopes\":[\"turn\"],\"channels\":[\"*\"]}", 422},
        {"POST", "/v1/keys", "{\"name\":\"n\",\"scopes\":[\"turns\"],\"channels\":[]}", 422},
        {"DELETE", "/v1/keys/0000000000000000", NULL, 404},
        {"DELETE", "/v1/keys/00000000000000000000000000", NULL, 404},
        {"PUT", "/v1/keys", "{}", 405},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        a = rig_admin(&r, cases[i].method, cases[i].path, cases[i].body);
        cr_expect_eq(a.status, cases[i].status, "%zu → %d", i, a.status);
        answer_free(&a);
    }
}

Test(access, health)
{
    struct answer a = rig_call(&r, NULL, "GET", "/livez", NULL);
    cr_assert_eq(a.status, 200);
    cr_assert_str_eq(answer_str(&a, "build"), "test");
    answer_free(&a);
    a = rig_call(&r, NULL, "GET", "/readyz", NULL);
    cr_assert_eq(a.status, 200);
    answer_free(&a);
    r.unready = true;
    a = rig_call(&r, NULL, "GET", "/readyz", NULL);
    cr_assert_eq(a.status, 503);
    cr_assert_str_eq(answer_str(&a, "detail"), "engine_unavailable: the engine does not answer");
    answer_free(&a);
}

/* Every route is in openapi.yaml and the other way round. */
Test(access, routes_equal_openapi)
{
    json_t *doc = NULL, *lines = NULL, *item, *operation;
    const char *path, *method;
    struct err err;
    size_t described = 0, routes = 0;

    cr_assert_eq(yaml_parse(embedded_openapi, strlen(embedded_openapi), &doc, &lines, &err), 0, "%s",
                 err.text);
    for (const struct http_route *route = admin_routes; route->method; route++) {
        char lower[8] = "";
        for (size_t i = 0; route->method[i]; i++)
            lower[i] = (char)(route->method[i] | 0x20);
        item = json_object_get(json_object_get(doc, "paths"), route->path);
        cr_expect(json_object_get(item, lower), "%s %s is not described", route->method, route->path);
        routes++;
    }
    json_object_foreach(json_object_get(doc, "paths"), path, item) {
        json_object_foreach(item, method, operation)
            described += json_object_get(operation, "operationId") != NULL;
    }
    cr_assert_eq(described, routes, "%zu operations, %zu routes", described, routes);
    json_decref(doc);
    json_decref(lines);
}
