/* The engine client against scripted engines: every way an answer can be missing or wrong. */
#include "fake.h"

#include "base/clock.h"
#include "docker/attach.h"
#include "docker/engine.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

#define OK_JSON(text, length)                                                                                \
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " length "\r\n\r\n" text

struct call {
    int rc, status;
    json_t *answer;
    struct err err;
    int64_t took_ms;
};

static struct call call(struct fake *f, const char *method, const json_t *body, int timeout_ms)
{
    struct call c = {.status = -1};
    struct engine *engine = NULL;
    int64_t before = clock_mono_ms();

    cr_assert_eq(engine_new(f->path, &engine, &c.err), 0);
    c.rc = engine_call(engine, method, "/containers/json", body, timeout_ms, &c.status, &c.answer, &c.err);
    c.took_ms = clock_mono_ms() - before;
    engine_free(engine);
    return c;
}

Test(engine, reads_json)
{
    struct fake f;

    fake_start(&f, OK_JSON("{\"a\":1}", "7"), 0);
    struct call c = call(&f, "GET", NULL, 2000);
    fake_stop(&f);
    cr_assert_eq(c.rc, 0, "%s", c.err.text);
    cr_expect_eq(c.status, 200);
    cr_expect_eq(json_integer_value(json_object_get(c.answer, "a")), 1);
    cr_expect_eq(strstr(f.request, "GET /v1.41/containers/json HTTP/1.1\r\n"), f.request);
    json_decref(c.answer);
}

Test(engine, sends_json)
{
    struct fake f;
    json_t *body = json_pack("{s:s}", "k", "v");

    fake_start(&f, "HTTP/1.1 204 No Content\r\n\r\n", 0);
    struct call c = call(&f, "POST", body, 2000);
    fake_stop(&f);
    cr_assert_eq(c.rc, 0, "%s", c.err.text);
    cr_expect_eq(c.status, 204);
    cr_expect_null(c.answer);
    cr_expect(strstr(f.request, "Content-Type: application/json\r\n"));
    cr_expect(strstr(f.request, "\r\n\r\n{\"k\":\"v\"}"));
    cr_expect_null(strstr(f.request, "Expect"));
    json_decref(body);
}

Test(engine, a_post_without_body_has_length_zero)
{
    struct fake f;

    fake_start(&f, "HTTP/1.1 304 Not Modified\r\n\r\n", 0);
    struct call c = call(&f, "POST", NULL, 2000);
    fake_stop(&f);
    cr_expect_eq(c.rc, 0, "304 is: already so. %s", c.err.text);
    cr_expect(strstr(f.request, "Content-Length: 0\r\n"));
}

Test(engine, an_error_status_quotes_the_engine)
{
    struct fake f;

    fake_start(&f,
               "HTTP/1.1 409 Conflict\r\nContent-Type: application/json\r\nContent-Length: 23\r\n\r\n"
               "{\"message\":\"name used\"}",
               0);
    struct call c = call(&f, "GET", NULL, 2000);
    fake_stop(&f);
    cr_expect_lt(c.rc, 0);
    cr_expect_eq(c.err.code, ERR_ENGINE);
    cr_expect_eq(c.status, 409);
    cr_expect(strstr(c.err.text, "name used"), "%s", c.err.text);
}

Test(engine, a_redirect_is_an_error)
{
    struct fake f;

    fake_start(&f, "HTTP/1.1 301 Moved\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", 0);
    struct call c = call(&f, "GET", NULL, 2000);
    fake_stop(&f);
    cr_expect_lt(c.rc, 0);
    cr_expect_eq(c.err.code, ERR_ENGINE);
    cr_expect_eq(f.requests, 1);
}

Test(engine, no_json_is_an_error)
{
    struct fake f;

    fake_start(&f, OK_JSON("<html>", "6"), 0);
    struct call c = call(&f, "GET", NULL, 2000);
    fake_stop(&f);
    cr_expect_lt(c.rc, 0);
    cr_expect_eq(c.err.code, ERR_ENGINE);
}

Test(engine, an_answer_over_the_bound_is_an_error)
{
    struct fake f;

    fake_start(&f, "HTTP/1.1 200 OK\r\nContent-Length: 2000000\r\n\r\n", 2000000);
    struct call c = call(&f, "GET", NULL, 5000);
    fake_stop(&f);
    cr_expect_lt(c.rc, 0);
    cr_expect_eq(c.err.code, ERR_ENGINE, "%s", c.err.text);
}

Test(engine, silence_ends_at_the_timeout)
{
    struct fake f;

    fake_start(&f, NULL, 0);
    struct call c = call(&f, "GET", NULL, 300);
    fake_stop(&f);
    cr_expect_lt(c.rc, 0);
    cr_expect_eq(c.err.code, ERR_ENGINE_AWAY);
    cr_expect_eq(c.status, 0);
    cr_expect(c.took_ms >= 290 && c.took_ms < 2000, "%d ms", (int)c.took_ms);
}

Test(engine, half_an_answer_is_no_answer)
{
    struct fake f;

    fake_start(&f, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"a\":", 0);
    struct call c = call(&f, "GET", NULL, 300);
    fake_stop(&f);
    cr_expect_lt(c.rc, 0);
    cr_expect_eq(c.err.code, ERR_ENGINE_AWAY);
}

Test(engine, a_closed_connection_is_away)
{
    struct fake f;

    fake_start(&f, "", 0);
    struct call c = call(&f, "GET", NULL, 2000);
    fake_stop(&f);
    cr_expect_lt(c.rc, 0);
    cr_expect_eq(c.err.code, ERR_ENGINE_AWAY);
}

Test(engine, no_socket_is_away)
{
    struct fake f = {.path = "/tmp/cloister-no-such-engine.sock"};

    struct call c = call(&f, "GET", NULL, 2000);
    cr_expect_lt(c.rc, 0);
    cr_expect_eq(c.err.code, ERR_ENGINE_AWAY);
    cr_expect_lt(c.took_ms, 1000);
}

Test(engine, the_path_must_be_absolute_and_short)
{
    struct engine *engine = NULL;
    struct err err;
    char longer[200];

    memset(longer, 'a', sizeof longer);
    longer[0] = '/';
    longer[199] = '\0';
    cr_expect_lt(engine_new("docker.sock", &engine, &err), 0);
    cr_expect_eq(err.code, ERR_CONFIG);
    cr_expect_lt(engine_new(longer, &engine, &err), 0);
    cr_expect_eq(err.code, ERR_CONFIG);
}

static int ping(const char *answer, unsigned *api, struct err *err)
{
    struct fake f;
    struct engine *engine = NULL;

    fake_start(&f, answer, 0);
    cr_assert_eq(engine_new(f.path, &engine, err), 0);
    int rc = engine_ping(engine, 2000, err);
    *api = engine_api(engine);
    engine_free(engine);
    fake_stop(&f);
    cr_expect_eq(strstr(f.request, "GET /version HTTP/1.1\r\n"), f.request);
    return rc;
}

Test(engine, agrees_on_the_lower_version)
{
    struct err err;
    unsigned api;

    cr_expect_eq(ping(OK_JSON("{\"ApiVersion\":\"1.43\",\"MinAPIVersion\":\"1.12\"}", "44"), &api, &err), 0);
    cr_expect_eq(api, 43);
    cr_expect_eq(ping(OK_JSON("{\"ApiVersion\":\"1.52\",\"MinAPIVersion\":\"1.44\"}", "44"), &api, &err), 0);
    cr_expect_eq(api, 44);
}

Test(engine, refuses_a_version_out_of_range)
{
    struct err err;
    unsigned api;

    cr_expect_lt(ping(OK_JSON("{\"ApiVersion\":\"1.40\",\"MinAPIVersion\":\"1.12\"}", "44"), &api, &err), 0);
    cr_expect_eq(err.code, ERR_ENGINE);
    cr_expect(strstr(err.text, "1.40"), "%s", err.text);
    cr_expect_lt(ping(OK_JSON("{\"ApiVersion\":\"1.60\",\"MinAPIVersion\":\"1.45\"}", "44"), &api, &err), 0);
    cr_expect_eq(err.code, ERR_ENGINE);
    cr_expect_lt(ping(OK_JSON("{\"ApiVersion\":\"two.1\"}", "22"), &api, &err), 0);
    cr_expect_eq(err.code, ERR_ENGINE);
}

Test(engine, a_name_cannot_end_the_path)
{
    struct buf path = BUF_INIT(256);
    struct err err;

    cr_assert_eq(engine_path_add(&path, "reg:5000/a/b:1@x?q#f%2e \n\xff", &err), 0);
    cr_expect_str_eq(path.data, "reg:5000/a/b:1@x%3Fq%23f%252e%20%0A%FF");
    buf_free(&path);
}

static int attach(struct fake *f, int timeout_ms, int *fd, struct err *err)
{
    struct engine *engine = NULL;

    cr_assert_eq(engine_new(f->path, &engine, err), 0);
    int rc = attach_open(engine, "abc", timeout_ms, fd, err);
    engine_free(engine);
    return rc;
}

Test(attach, leaves_what_follows_the_head)
{
    struct fake f;
    struct err err;
    char data[32] = "";
    int fd = -1;

    fake_start(&f, "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\n\r\nfirst bytes", 0);
    cr_assert_eq(attach(&f, 2000, &fd, &err), 0, "%s", err.text);
    cr_expect_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    cr_expect_eq(fcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    cr_assert_eq(poll(&p, 1, 2000), 1);
    cr_expect_eq(read(fd, data, sizeof data - 1), 11);
    cr_expect_str_eq(data, "first bytes");
    close(fd);
    fake_stop(&f);
    cr_expect_eq(strstr(f.request,
                        "POST /v1.41/containers/abc/attach?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1\r\n"),
                 f.request);
}

static enum err_code attach_fails(const char *answer, unsigned repeat, int timeout_ms)
{
    struct fake f;
    struct err err;
    int fd = -1;

    fake_start(&f, answer, repeat);
    cr_expect_lt(attach(&f, timeout_ms, &fd, &err), 0);
    cr_expect_eq(fd, -1);
    fake_stop(&f);
    return err.code;
}

Test(attach, refuses_anything_but_101)
{
    cr_expect_eq(attach_fails("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 0, 2000), ERR_ENGINE);
    cr_expect_eq(attach_fails("HTTP/1.1 200 OK\r\n\r\n", 0, 2000), ERR_ENGINE);
    cr_expect_eq(attach_fails("nonsense\r\n\r\n", 0, 2000), ERR_ENGINE);
}

Test(attach, bounds_the_head)
{
    cr_expect_eq(attach_fails("HTTP/1.1 101 UPGRADED\r\nX: ", 64 * 1024, 2000), ERR_ENGINE);
}

Test(attach, silence_and_closing_are_away)
{
    cr_expect_eq(attach_fails(NULL, 0, 200), ERR_ENGINE_AWAY);
    cr_expect_eq(attach_fails("", 0, 2000), ERR_ENGINE_AWAY);
    cr_expect_eq(attach_fails("HTTP/1.1 101 UPGR", 0, 200), ERR_ENGINE_AWAY);
}
