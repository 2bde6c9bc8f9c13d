#include "base/clock.h"
#include "base/limits.h"
#include "tests/unit/fake_upstream.h"
#include "upstream/upstream.h"

#include <curl/curl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define KEY "sk-test-0123456789abcdef"

static struct fake *fake;
static struct upstream *up;
static struct secret key;
static struct err err;

static void setup(void)
{
    signal(SIGPIPE, SIG_IGN);
    cr_assert(secret_init(&err) == 0 && curl_global_init(CURL_GLOBAL_ALL) == 0);
    cr_assert(upstream_new(&up, &err) == 0);
    cr_assert(secret_set(&key, KEY, strlen(KEY), &err) == 0);
    fake = fake_new();
}

static void teardown(void)
{
    upstream_free(up);
    fake_free(fake);
    secret_free(&key);
    curl_global_cleanup();
}

TestSuite(upstream, .init = setup, .fini = teardown, .timeout = 60);

static char url[128];

static struct upstream_request request(void)
{
    snprintf(url, sizeof url, "http://127.0.0.1:%d/v1/chat?x=1", fake->port);
    return (struct upstream_request){.url = url,
                                     .allow_http = true,
                                     .body = "{\"a\":1}",
                                     .body_len = 7,
                                     .bearer = &key,
                                     .traceparent = "",
                                     .deadline = clock_mono_ms() + 5000,
                                     .cancel_fd = -1};
}

static int post(const struct upstream_request *req, int *status, struct buf *answer)
{
    err = (struct err){0};
    int rc = upstream_post(up, req, status, answer, &err);
    cr_assert(strstr(err.text, KEY) == NULL && strstr(err.text, "sk-") == NULL, "%s", err.text);
    return rc;
}

/* Refused with this code; the answer of the server must not be in the sentence. */
static void refused(const struct upstream_request *req, enum err_code code, const char *word)
{
    struct buf answer = BUF_INIT(LIMIT_UPSTREAM_ANSWER);
    int status = -1;

    cr_assert(post(req, &status, &answer) == -1);
    cr_assert(err.code == code && strstr(err.text, word), "%s: %s", err_name(err.code), err.text);
    cr_assert(status == -1);
    buf_free(&answer);
}

Test(upstream, sends_exactly_its_own_headers)
{
    struct buf answer = BUF_INIT(LIMIT_UPSTREAM_ANSWER);
    struct upstream_request req = request();
    int status = 0;
    char head[1024];

    fake_answer(fake, "200 OK", "", "{\"ok\":true}");
    req.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    cr_assert(post(&req, &status, &answer) == 0, "%s", err.text);
    cr_assert(status == 200 && strcmp(answer.data, "{\"ok\":true}") == 0);
    snprintf(head, sizeof head,
             "POST /v1/chat?x=1 HTTP/1.1\r\nHost: 127.0.0.1:%d\r\ncontent-type: application/json\r\n"
             "accept: application/json\r\nauthorization: Bearer " KEY "\r\ntraceparent: %s\r\n"
             "Content-Length: 7\r\n\r\n{\"a\":1}",
             fake->port, req.traceparent);
    cr_assert_str_eq(fake->request, head);
    buf_free(&answer);
}

Test(upstream, no_credential_no_authorization)
{
    struct buf answer = BUF_INIT(100);
    struct upstream_request req = request();
    int status = 0;

    fake_answer(fake, "200 OK", "", "{}");
    req.bearer = NULL;
    cr_assert(post(&req, &status, &answer) == 0);
    cr_assert(strcasestr(fake->request, "authorization") == NULL);
    cr_assert(strcasestr(fake->request, "traceparent") == NULL);
    buf_free(&answer);
}

Test(upstream, large_bodies_go_up_without_expect)
{
    struct buf answer = BUF_INIT(100);
    struct upstream_request req = request();
    int status = 0;
    char *body = malloc(LIMIT_BROKER_BODY);

    memset(body, 'b', LIMIT_BROKER_BODY);
    req.body = body;
    req.body_len = LIMIT_BROKER_BODY;
    fake_answer(fake, "200 OK", "", "{}");
    cr_assert(post(&req, &status, &answer) == 0, "%s", err.text);
    cr_assert(fake->request_len - fake->head_len == LIMIT_BROKER_BODY);
    cr_assert(strcasestr(fake->request, "expect:") == NULL);
    free(body);
    buf_free(&answer);
}

Test(upstream, connections_are_used_again)
{
    struct upstream_request req = request();

    fake_answer(fake, "200 OK", "", "{}");
    for (int i = 0; i < 5; i++) {
        struct buf answer = BUF_INIT(100);
        int status = 0;
        req.deadline = clock_mono_ms() + 5000;
        cr_assert(post(&req, &status, &answer) == 0, "%s", err.text);
        buf_free(&answer);
    }
    cr_assert(fake->requests == 5 && fake->connections == 1, "%u connections", fake->connections);
}

Test(upstream, a_redirect_is_only_a_status)
{
    struct buf answer = BUF_INIT(100);
    struct upstream_request req = request();
    char location[128];
    int status = 0;

    snprintf(location, sizeof location, "Location: http://127.0.0.1:%d/elsewhere\r\n", fake->port);
    fake_answer(fake, "307 Temporary Redirect", location, "{}");
    cr_assert(post(&req, &status, &answer) == 0);
    cr_assert(status == 307 && fake->requests == 1);
    buf_free(&answer);
}

Test(upstream, cookies_are_not_kept)
{
    struct upstream_request req = request();
    int status = 0;

    fake_answer(fake, "200 OK", "Set-Cookie: a=b; Path=/\r\n", "{}");
    for (int i = 0; i < 2; i++) {
        struct buf answer = BUF_INIT(100);
        cr_assert(post(&req, &status, &answer) == 0);
        buf_free(&answer);
    }
    cr_assert(strcasestr(fake->request, "cookie") == NULL);
}

Test(upstream, proxy_variables_do_not_count)
{
    struct buf answer = BUF_INIT(100);
    struct upstream_request req = request();
    int status = 0;

    setenv("http_proxy", "http://127.0.0.1:1", 1);
    setenv("ALL_PROXY", "http://127.0.0.1:1", 1);
    fake_answer(fake, "200 OK", "", "{}");
    cr_assert(post(&req, &status, &answer) == 0, "%s", err.text);
    buf_free(&answer);
}

Test(upstream, the_answer_is_bounded_exactly)
{
    struct upstream_request req = request();
    int status = 0;

    for (size_t extra = 0; extra < 2; extra++) {
        struct buf answer = BUF_INIT(LIMIT_UPSTREAM_ANSWER);
        char *body = malloc(LIMIT_UPSTREAM_ANSWER + 2);
        memset(body, 'x', LIMIT_UPSTREAM_ANSWER + extra);
        body[LIMIT_UPSTREAM_ANSWER + extra] = '\0';
        fake_answer(fake, "200 OK", "", body);
        int rc = post(&req, &status, &answer);
        cr_assert(rc == (extra ? -1 : 0), "%zu extra: %s", extra, err.text);
        cr_assert(!extra || err.code == ERR_UPSTREAM);
        free(body);
        buf_free(&answer);
    }
}

Test(upstream, endless_answers_are_cut_off)
{
    struct upstream_request req = request();

    fake_set(fake, FAKE_ENDLESS, "", 0);
    refused(&req, ERR_UPSTREAM, "more than");
    fake_set(fake, FAKE_HEADS, "", 0);
    refused(&req, ERR_UPSTREAM, "header lines");
}

Test(upstream, no_http_no_answer)
{
    struct upstream_request req = request();

    fake_set(fake, FAKE_ANSWER, "hello\r\n\r\n", 9);
    refused(&req, ERR_UPSTREAM, "");
    fake_set(fake, FAKE_HANG_UP, "", 0);
    refused(&req, ERR_UPSTREAM, "");
    req.url = "http://127.0.0.1:1/";
    refused(&req, ERR_UPSTREAM, "");
}

Test(upstream, the_deadline_holds_against_silence_and_drip)
{
    static const enum fake_mode modes[] = {FAKE_HANG, FAKE_DRIP};

    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        struct upstream_request req = request();
        int64_t start = clock_mono_ms();
        fake_set(fake, modes[i], "", 0);
        req.deadline = start + 200;
        refused(&req, ERR_TIMEOUT, "deadline");
        int64_t took = clock_mono_ms() - start;
        cr_assert(took >= 200 && took < 1000, "%d ms", (int)took);
    }
}

struct canceler {
    int fd;
    unsigned requests;
    int64_t at_us;
};

static void *cancel_when_asked(void *arg)
{
    struct canceler *c = arg;

    fake_wait_requests(fake, c->requests);
    c->at_us = clock_mono_us();
    eventfd_write(c->fd, 1);
    return NULL;
}

Test(upstream, a_cancel_ends_the_call_at_once)
{
    static const enum fake_mode modes[] = {FAKE_HANG, FAKE_DRIP};

    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        struct upstream_request req = request();
        struct canceler c = {.fd = eventfd(0, EFD_CLOEXEC), .requests = (unsigned)i + 1};
        pthread_t t;
        fake_set(fake, modes[i], "", 0);
        req.cancel_fd = c.fd;
        req.deadline = clock_mono_ms() + 20000;
        cr_assert(pthread_create(&t, NULL, cancel_when_asked, &c) == 0);
        refused(&req, ERR_CANCELED, "not wanted");
        int64_t took = clock_mono_us() - c.at_us;
        pthread_join(t, NULL);
        cr_assert(took < 100000, "%d us", (int)took);
        close(c.fd);
    }
    /* The line works again afterwards. */
    struct upstream_request req = request();
    struct buf answer = BUF_INIT(100);
    int status = 0;
    fake_answer(fake, "200 OK", "", "{}");
    cr_assert(post(&req, &status, &answer) == 0 && status == 200, "%s", err.text);
    buf_free(&answer);
}

Test(upstream, http_is_refused_where_only_https_is_allowed)
{
    struct upstream_request req = request();

    req.allow_http = false;
    refused(&req, ERR_UPSTREAM, "");
    cr_assert(fake->connections == 0);
}

/* Starts `openssl s_server` with a certificate that nobody trusts; its port, and its process in *pid. */
static int start_untrusted(pid_t *pid, char *dir)
{
    char command[512], line[256];
    int out[2], port = 0;

    cr_assert(mkdtemp(dir) != NULL);
    snprintf(command, sizeof command,
             "cd %s && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "
             "k.pem -out "
             "c.pem -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 2>/dev/null && "
             "exec openssl s_server -accept 127.0.0.1:0 -key k.pem -cert c.pem -www 2>/dev/null",
             dir);
    cr_assert(pipe(out) == 0);
    *pid = fork();
    if (*pid == 0) {
        dup2(out[1], 1);
        close(out[0]);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    FILE *in = fdopen(out[0], "r");
    while (port == 0 && fgets(line, sizeof line, in))
        if (strncmp(line, "ACCEPT ", 7) == 0)
            port = atoi(strrchr(line, ':') + 1);
    cr_assert(port > 0, "openssl s_server does not start");
    return port; /* `in` stays open: the server may go on writing */
}

Test(upstream, an_untrusted_certificate_is_refused)
{
    struct upstream_request req = request();
    char dir[] = "/tmp/cloister-tls-XXXXXX", where[64], path[96];
    pid_t pid;

    int port = start_untrusted(&pid, dir);
    snprintf(where, sizeof where, "https://127.0.0.1:%d/", port);
    req.url = where;
    req.allow_http = false;
    refused(&req, ERR_UPSTREAM, "certificate");
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
    snprintf(path, sizeof path, "%s/k.pem", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/c.pem", dir);
    unlink(path);
    rmdir(dir);
}

Test(upstream_url, rules)
{
    static const struct {
        const char *url;
        bool allow_http, fine;
        const char *word;
    } cases[] = {
        {"https://api.example.com/v1/chat/completions", false, true, ""},
        {"https://api.example.com:8443/v1?api-version=1", false, true, ""},
        {"https://[::1]/v1", false, true, ""},
        {"https://h/a@b?c=d@e", false, true, ""},
        {"http://127.0.0.1:9/v1", true, true, ""},
        {"http://127.0.0.1:9/v1", false, false, "https"},
        {"https://user@h/", false, false, "userinfo"},
        {"https://user:pw@h/", false, false, "userinfo"},
        {"https://:pw@h/", false, false, "userinfo"},
        {"https://@h/", false, false, "userinfo"},
        {"https://h/#", false, false, "fragment"},
        {"https://h/x#frag", false, false, "fragment"},
        {"ftp://h/", true, false, "https"},
        {"file:///etc/passwd", true, false, ""},
        {"h/v1", false, false, "absolute"},
        {"", false, false, "absolute"},
        {"https://", false, false, ""},
        {"https:///v1", false, false, ""},
        {"https:/h/v1", false, false, ""},
        {"https:h", false, false, ""},
        {"https://h h/", false, false, ""},
        {"https://h/\r\nx: y", false, false, ""},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        err = (struct err){0};
        int rc = upstream_check_url(cases[i].url, cases[i].allow_http, &err);
        cr_assert(rc == (cases[i].fine ? 0 : -1), "%s: %s", cases[i].url, err.text);
        cr_assert(cases[i].fine || (err.code == ERR_CONFIG && strstr(err.text, cases[i].word)), "%s: %s",
                  cases[i].url, err.text);
    }
}
