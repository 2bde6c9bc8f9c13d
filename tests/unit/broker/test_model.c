#include "base/json.h"
#include "tests/unit/broker/client.h"
#include "tests/unit/scratch.h"

static struct rig rig;

static void setup(void)
{
    rig_open(&rig);
}

static void teardown(void)
{
    rig_close(&rig);
}

TestSuite(model, .init = setup, .fini = teardown, .timeout = 60);

#define GOOD                                                                                                 \
    "{\"id\":\"up-1\",\"model\":\"secret-name\",\"choices\":[{\"message\":{\"content\":\"hi\"},"             \
    "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}"

static struct broker_stats stats(void)
{
    struct broker_stats s;

    broker_stats(rig.broker, &s);
    return s;
}

Test(model, the_request_is_the_operators)
{
    const char *body =
        "{\"model\":\"other\",\"max_tokens\":9,\"stream\":true,\"n\":5,\"messages\":[{\"role\":\"user\","
        "\"content\":\"a\"}],\"tools\":[{\"type\":\"function\",\"x\":1,\"function\":{\"name\":\"f\","
        "\"description\":\"d\",\"parameters\":{}}}]}";

    fake_answer(rig.fake, "200 OK", "X-Secret: header\r\n", GOOD);
    struct reply r = client_call(&rig, body);
    cr_assert(r.status == 200 && !strstr(r.text, "X-Secret") && !strstr(r.text, "secret-name"), "%s", r.text);
    cr_assert_str_eq(r.body,
                     "{\"object\":\"chat.completion\",\"choices\":[{\"index\":0,\"message\":{\"role\":"
                     "\"assistant\",\"content\":\"hi\"},\"finish_reason\":\"stop\"}],\"usage\":{"
                     "\"prompt_tokens\":5,\"completion_tokens\":2,\"total_tokens\":7}}");
    free(r.text);
    cr_assert_str_eq(
        rig.fake->request + rig.fake->head_len,
        "{\"model\":\"test-model\",\"max_tokens\":321,\"messages\":[{\"role\":\"user\",\"content\":"
        "\"a\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\","
        "\"parameters\":{}}}]}");
}

Test(model, the_credential_is_swapped)
{
    fake_answer(rig.fake, "200 OK", "", GOOD);
    client_expect(&rig, HELLO, 200, "hi");
    cr_assert(strstr(rig.fake->request, "authorization: Bearer " KEY "\r\n") != NULL, "%s",
              rig.fake->request);
    cr_assert(strstr(rig.fake->request, DUMMY_KEY) == NULL);
    cr_assert(strncmp(rig.fake->request, "POST /v1/chat/completions HTTP/1.1\r\n", 36) == 0);
}

Test(model, a_call_is_counted_and_reported)
{
    fake_answer(rig.fake, "200 OK", "", GOOD);
    client_expect(&rig, HELLO, 200, "hi");
    client_expect(&rig, HELLO, 200, "hi");
    struct broker_stats s = stats();
    cr_assert(s.calls == 2 && s.model_calls == 2 && s.prompt_tokens == 10 && s.completion_tokens == 4);
    cr_assert(!s.model_refused && !s.budget_spent && rig.n_calls == 2);
    const struct broker_call *c = &rig.calls[1];
    cr_assert_str_eq(c->kind, "model");
    cr_assert_str_eq(c->name, "test-model");
    cr_assert(c->status == 200 && c->bytes_in == strlen(HELLO) && c->bytes_out > 100 &&
              c->prompt_tokens == 5 && c->completion_tokens == 2 && c->duration_ms >= 0 &&
              c->started_wall_ms > 1700000000000);
}

Test(model, bad_bodies_never_go_up)
{
    client_expect(&rig, "", 400, "invalid_json");
    client_expect(&rig, "{", 400, "invalid_json");
    client_expect(&rig, "{\"messages\":[],\"messages\":[]}", 400, "invalid_json");
    client_expect(&rig, "[]", 422, "\"pointer\":\"\"");
    struct reply r =
        client_call(&rig, "{\"messages\":[{\"role\":\"user\",\"content\":[]},{\"role\":\"x\",\"content\":"
                          "\"\"}]}");
    cr_assert(r.status == 422 && strstr(r.body, "/messages/0/content") && strstr(r.body, "/messages/1/role"),
              "%s", r.text);
    free(r.text);
    cr_assert(fake_requests(rig.fake) == 0);
    cr_assert(stats().calls == 5 && !stats().model_refused && rig.n_calls == 5);
}

Test(model, upstream_failures_are_502_and_generic)
{
    static const char *const statuses[] = {
        "201 Created", "204 No Content",   "301 Moved",     "307 Temporary Redirect",
        "400 Bad",     "401 Unauthorized", "429 Slow down", "500 Oops"};
    char location[128];

    snprintf(location, sizeof location, "Location: http://127.0.0.1:%d/x\r\n", rig.fake->port);
    for (size_t i = 0; i < ARRAY_LEN(statuses); i++) {
        fake_answer(rig.fake, statuses[i], location,
                    strncmp(statuses[i], "204", 3) ? "{\"detail\":\"private\"}" : "");
        struct reply r = client_call(&rig, HELLO);
        cr_assert(r.status == 502, "%s: %s", statuses[i], r.text);
        cr_assert_str_eq(
            r.body, "{\"error\":{\"code\":\"model_refused\",\"message\":\"The model did not give a usable "
                    "answer.\"}}");
        free(r.text);
        cr_assert(stats().model_refused);
    }
    cr_assert(fake_requests(rig.fake) == ARRAY_LEN(statuses), "a redirect was followed");
}

Test(model, unusable_answers_are_502)
{
    static const char *const bodies[] = {"",
                                         "hello",
                                         "{\"choices\":[]}",
                                         "{\"a\":1,\"a\":1}",
                                         "[[[[",
                                         "{\"choices\":[{\"message\":{\"content\":{}}}]}",
                                         "{\"choices\":[{\"message\":{\"content\":\"\\u0000\"}}]}",
                                         "{\"choices\":[{\"message\":{\"content\":\"\xFF\"}}]}",
                                         GOOD "x"};

    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        fake_answer(rig.fake, "200 OK", "", bodies[i]);
        client_expect(&rig, HELLO, 502, "model_refused");
    }
    fake_set(rig.fake, FAKE_ENDLESS, "", 0);
    client_expect(&rig, HELLO, 502, "model_refused");
    fake_set(rig.fake, FAKE_HANG_UP, "", 0);
    client_expect(&rig, HELLO, 502, "model_refused");
    /* and a good one makes it good again */
    fake_answer(rig.fake, "200 OK", "", GOOD);
    client_expect(&rig, HELLO, 200, "hi");
    cr_assert(!stats().model_refused);
}

Test(model, reflected_credentials_are_refused)
{
    static const char *const forms[] = {
        "{\"choices\":[{\"message\":{\"content\":\"" KEY "\"}}]}",
        "{\"choices\":[{\"message\":{\"content\":\"hi\"}}],\"debug\":{\"headers\":[\"Bearer " KEY "\"]}}",
        "{\"choices\":[{\"message\":{\"content\":\"hi\"}}],\"" KEY "\":1}",
        "{\"choices\":[{\"message\":{\"content\":\"sk-test\\/0123456789\\u002babcdef\"}}]}",
        "{\"choices\":[{\"message\":{\"content\":\"sk-test%2F0123456789%2babcdef\"}}]}",
        "{\"choices\":[{\"message\":{\"content\":\"736b2d746573742F303132333435363738392b616263646566\"}}]}",
        "{\"choices\":[{\"message\":{\"content\":\"c2stdGVzdC8wMTIzNDU2Nzg5K2FiY2RlZg==\"}}]}",
        "{\"choices\":[{\"message\":{\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"f\","
        "\"arguments\":"
        "\"{\\\"k\\\":\\\"\\\\u0073k-test\\\\/0123456789+abcdef\\\"}\"}}]}}]}"};

    fake_set(rig.fake, FAKE_REFLECT, "", 0);
    client_expect(&rig, HELLO, 502, "model_refused");
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        fake_answer(rig.fake, "200 OK", "", forms[i]);
        client_expect(&rig, HELLO, 502, "model_refused");
    }
}

Test(model, what_was_dropped_from_the_answer_was_checked_but_does_not_come_down)
{
    fake_answer(rig.fake, "200 OK", "Set-Cookie: a=b\r\nX-Request-Id: up-42\r\n",
                "{\"choices\":[{\"message\":{\"content\":\"hi\"}}],\"internal\":\"upstream detail\"}");
    struct reply r = client_call(&rig, HELLO);
    cr_assert(r.status == 200 && !strstr(r.text, "detail") && !strstr(r.text, "up-42") &&
              !strstr(r.text, "a=b"));
    free(r.text);
}

Test(model, failures_are_logged_without_secrets)
{
    char path[96], log[8192] = "";
    int real = dup(STDERR_FILENO);

    snprintf(path, sizeof path, "%s/log", rig.dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    cr_assert(fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    fake_answer(rig.fake, "401 Unauthorized", "", "{\"detail\":\"private " KEY "\"}");
    client_expect(&rig, HELLO, 502, "model_refused");
    fake_set(rig.fake, FAKE_REFLECT, "", 0);
    client_expect(&rig, HELLO, 502, "model_refused");
    client_expect(&rig, "[]", 422, "invalid");
    dup2(real, STDERR_FILENO);
    close(real);
    cr_assert(pread(fd, log, sizeof log - 1, 0) > 0);
    close(fd);
    unlink(path);
    cr_assert(strstr(log, "\"id\":\"turn_1\"") && strstr(log, "status 401") &&
                  strstr(log, "contains the credential"),
              "%s", log);
    cr_assert(!strstr(log, KEY) && !strstr(log, "private") && !strstr(log, "hello"), "%s", log);
    size_t lines = 0;
    for (const char *c = log; *c; c++)
        lines += *c == '\n';
    cr_assert(lines == 2, "a guest's own fault is not logged: %s", log);
}

Test(model, a_budget_of_48_calls)
{
    char *request = client_request(HELLO);
    int fd = client_connect(&rig);

    fake_answer(rig.fake, "200 OK", "", GOOD);
    for (int i = 0; i < 50; i++) {
        client_send(fd, request);
        struct reply r = client_read(fd);
        cr_assert(r.status == (i < 48 ? 200 : 429), "%d: %s", i, r.text);
        cr_assert(i < 48 || strstr(r.body, "budget_spent"));
        free(r.text);
    }
    cr_assert(fake_requests(rig.fake) == 48 && stats().budget_spent && stats().calls == 48 &&
              rig.n_calls == 48);
    close(fd);
    free(request);
}

Test(model, one_call_in_flight)
{
    char *request = client_request(HELLO);
    int fd = client_connect(&rig);

    fake_set(rig.fake, FAKE_HANG, "", 0);
    client_send(fd, request);
    fake_wait_requests(rig.fake, 1);
    client_expect(&rig, HELLO, 429, "call_in_flight");
    cr_assert(stats().calls == 1 && !stats().budget_spent);
    broker_close(rig.broker);
    struct reply r = client_read(fd);
    cr_assert(r.status == 410 && strstr(r.body, "gone"), "%s", r.text);
    free(r.text);
    free(request);
    close(fd);
}

Test(model, close_aborts_a_call_at_once)
{
    char *request = client_request(HELLO);
    int fd = client_connect(&rig);

    fake_set(rig.fake, FAKE_HANG, "", 0);
    client_send(fd, request);
    fake_wait_requests(rig.fake, 1);
    int64_t start = clock_mono_us();
    broker_close(rig.broker);
    int64_t took = clock_mono_us() - start;
    cr_assert(took < 100000, "%d us", (int)took);
    cr_assert(rig.n_calls == 1 && rig.calls[0].status == 410 && !stats().model_refused);
    client_expect(&rig, HELLO, 410, "gone");
    cr_assert(rig.n_calls == 1 && stats().calls == 1);
    broker_close(rig.broker);
    free(request);
    close(fd);
}

Test(model, free_without_close_aborts_too)
{
    char *request = client_request(HELLO);
    int fd = client_connect(&rig);

    fake_set(rig.fake, FAKE_HANG, "", 0);
    client_send(fd, request);
    fake_wait_requests(rig.fake, 1);
    int64_t start = clock_mono_us();
    broker_free(STEAL(rig.broker));
    cr_assert(clock_mono_us() - start < 200000);
    cr_assert(rig.n_calls == 1);
    free(request);
    close(fd);
}

/* With another deadline, traceparent or credential: a broker of its own in the same folder. */
static void again(struct broker_turn turn)
{
    broker_free(STEAL(rig.broker));
    cr_assert(broker_new(rig.env, rig.dir, &rig.broker, &rig.err) == 0, "%s", rig.err.text);
    cr_assert(broker_bind(rig.broker, &turn, &rig.err) == 0);
}

Test(model, the_turns_deadline_is_504)
{
    struct broker_turn turn = rig_turn(&rig);

    turn.deadline = clock_mono_ms() + 300;
    again(turn);
    fake_set(rig.fake, FAKE_HANG, "", 0);
    int64_t start = clock_mono_ms();
    client_expect(&rig, HELLO, 504, "timeout");
    int64_t took = clock_mono_ms() - start;
    cr_assert(took >= 200 && took < 1500, "%d ms", (int)took);
}

Test(model, the_traceparent_goes_up)
{
    struct broker_turn turn = rig_turn(&rig);

    turn.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    again(turn);
    fake_answer(rig.fake, "200 OK", "", GOOD);
    client_expect(&rig, HELLO, 200, "hi");
    cr_assert(strstr(rig.fake->request,
                     "\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n"));
}

Test(model, connections_upstream_outlive_turns)
{
    fake_answer(rig.fake, "200 OK", "", GOOD);
    for (int i = 0; i < 3; i++) {
        again(rig_turn(&rig));
        client_expect(&rig, HELLO, 200, "hi");
    }
    cr_assert(rig.fake->connections == 1, "%u", rig.fake->connections);
}

Test(model, a_rotated_credential_is_used_and_guarded)
{
    char path[96];
    struct broker_settings settings = rig_settings(rig.url);
    static const char first[] = "first-credential-0001\n", second[] = "second-credential-0002\n";

    snprintf(path, sizeof path, "%s/key", rig.dir);
    scratch_write(path, first, strlen(first));
    broker_free(STEAL(rig.broker));
    broker_env_free(STEAL(rig.env));
    cr_assert(credential_from_file(path, &settings.credential, &rig.err) == 0);
    rig_start(&rig, settings);
    rig_bind(&rig);
    fake_answer(rig.fake, "200 OK", "", GOOD);
    client_expect(&rig, HELLO, 200, "hi");
    cr_assert(strstr(rig.fake->request, "authorization: Bearer first-credential-0001\r\n"));
    scratch_write(path, second, strlen(second));
    client_expect(&rig, HELLO, 200, "hi");
    cr_assert(strstr(rig.fake->request, "authorization: Bearer second-credential-0002\r\n"));
    fake_set(rig.fake, FAKE_REFLECT, "", 0);
    client_expect(&rig, HELLO, 502, "model_refused");
    unlink(path);
    client_expect(&rig, HELLO, 502, "model_refused");
    cr_assert(fake_requests(rig.fake) == 3, "without a credential nothing goes up");
}
