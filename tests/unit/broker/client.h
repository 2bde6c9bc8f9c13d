/* tests/unit/broker/client.h: a broker with its turn, and a client that writes raw bytes to its socket. */
#pragma once

#include "base/clock.h"
#include "base/limits.h"
#include "broker/broker.h"
#include "tests/unit/fake_upstream.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/un.h>

#define KEY "sk-test/0123456789+abcdef"

struct rig {
    struct err err;
    struct fake *fake;
    struct broker_env *env;
    struct broker *broker;
    char dir[64], path[96], url[96], container[96];
    pthread_mutex_t lock;
    struct broker_call calls[128];
    unsigned n_calls;
};

/* Settings that a test may change before rig_open. */
static inline struct broker_settings rig_settings(const char *url)
{
    return (struct broker_settings){
        .model_url = url, .model_name = "test-model", .max_tokens = 321, .max_calls = 48, .allow_http = true};
}

static inline void rig_on_call(void *arg, const struct broker_call *call)
{
    struct rig *rig = arg;

    pthread_mutex_lock(&rig->lock);
    if (rig->n_calls < 128)
        rig->calls[rig->n_calls++] = *call;
    pthread_mutex_unlock(&rig->lock);
}

/* Something that /proc/self/cgroup names on any machine. */
static inline void own_cgroup(char *out, size_t size)
{
    FILE *f = fopen("/proc/self/cgroup", "re");

    cr_assert(f && fgets(out, (int)size, f));
    out[strcspn(out, "\n")] = '\0';
    fclose(f);
}

static inline void rig_prepare(struct rig *rig)
{
    signal(SIGPIPE, SIG_IGN);
    cr_assert(secret_init(&rig->err) == 0 && curl_global_init(CURL_GLOBAL_ALL) == 0);
    pthread_mutex_init(&rig->lock, NULL);
    strcpy(rig->dir, "/tmp/cloister-broker-XXXXXX");
    cr_assert(mkdtemp(rig->dir) != NULL);
    snprintf(rig->path, sizeof rig->path, "%s/broker.sock", rig->dir);
    own_cgroup(rig->container, sizeof rig->container);
}

static inline struct broker_turn rig_turn(struct rig *rig)
{
    return (struct broker_turn){.turn_id = "turn_1",
                                .container_id = rig->container,
                                .deadline = clock_mono_ms() + 30000,
                                .traceparent = "",
                                .on_call = rig_on_call,
                                .arg = rig};
}

static inline void rig_bind(struct rig *rig)
{
    struct broker_turn turn = rig_turn(rig);

    cr_assert(broker_bind(rig->broker, &turn, &rig->err) == 0, "%s", rig->err.text);
}

/* The environment and an unbound broker. The key is a value from the environment unless settings have one. */
static inline void rig_start(struct rig *rig, struct broker_settings settings)
{
    if (!settings.credential)
        cr_assert(credential_from_value("K", KEY, &settings.credential, &rig->err) == 0);
    cr_assert(broker_env_new(&settings, &rig->env, &rig->err) == 0, "%s", rig->err.text);
    cr_assert(broker_new(rig->env, rig->dir, &rig->broker, &rig->err) == 0, "%s", rig->err.text);
}

/* A bound broker in front of a fake upstream. */
static inline void rig_open(struct rig *rig)
{
    rig_prepare(rig);
    rig->fake = fake_new();
    snprintf(rig->url, sizeof rig->url, "http://127.0.0.1:%d/v1/chat/completions", rig->fake->port);
    rig_start(rig, rig_settings(rig->url));
    rig_bind(rig);
}

static inline void rig_open_embedded(struct rig *rig, const char *url)
{
    struct broker_settings settings = rig_settings(url);

    rig_prepare(rig);
    settings.allow_script = true;
    rig_start(rig, settings);
    rig_bind(rig);
}

static inline void rig_close(struct rig *rig)
{
    broker_free(rig->broker);
    cr_assert(access(rig->path, F_OK) != 0, "the socket is still there");
    broker_env_free(rig->env);
    if (rig->fake)
        fake_free(rig->fake);
    cr_assert(rmdir(rig->dir) == 0);
    pthread_mutex_destroy(&rig->lock);
    curl_global_cleanup();
}

/* --- client --------------------------------------------------------------------------------------------- */

static inline int client_connect(const struct rig *rig)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = 20};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    strcpy(a.sun_path, rig->path);
    cr_assert(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return fd;
}

struct reply {
    int status; /* 0: the connection ended without an answer */
    char *text; /* the head and the body */
    const char *body;
};

/* One answer by its Content-Length. */
static inline struct reply client_read(int fd)
{
    struct reply r = {.text = calloc(1, 4 * 1024 * 1024)};
    size_t len = 0, want = 0;

    while (want == 0 || len < want) {
        ssize_t n = recv(fd, r.text + len, want ? want - len : 1, 0);
        if (n <= 0)
            break;
        len += (size_t)n;
        const char *end = want ? NULL : strstr(r.text, "\r\n\r\n");
        if (end) {
            const char *cl = strcasestr(r.text, "content-length:");
            cr_assert(cl != NULL, "%s", r.text);
            want = (size_t)(end + 4 - r.text) + strtoul(cl + 15, NULL, 10);
            r.body = end + 4;
        }
    }
    if (want > 0 && len == want)
        sscanf(r.text, "HTTP/1.1 %d", &r.status);
    cr_assert(strstr(r.text, KEY) == NULL && strstr(r.text, "127.0.0.1") == NULL, "%s", r.text);
    return r;
}

/* True when the other side has closed, within the patience of the socket. */
static inline bool client_at_end(int fd)
{
    char byte;

    return recv(fd, &byte, 1, 0) <= 0;
}

static inline void client_send(int fd, const char *text)
{
    fake_send(fd, text, strlen(text)); /* the answer tells whether it arrived */
}

static inline char *client_request(const char *body)
{
    char *out = malloc(strlen(body) + 256);

    sprintf(out,
            "POST /model HTTP/1.1\r\nHost: broker\r\nContent-Type: application/json\r\n"
            "Authorization: Bearer " DUMMY_KEY "\r\nContent-Length: %zu\r\n\r\n%s",
            strlen(body), body);
    return out;
}

/* A whole call on a connection of its own; free(r.text). */
static inline struct reply client_call(const struct rig *rig, const char *body)
{
    char *request = client_request(body);
    int fd = client_connect(rig);

    client_send(fd, request);
    struct reply r = client_read(fd);
    close(fd);
    free(request);
    return r;
}

/* Calls, and asserts the status and that the body holds `word`. */
static inline void client_expect(const struct rig *rig, const char *body, int status, const char *word)
{
    struct reply r = client_call(rig, body);

    cr_assert(r.status == status && strstr(r.body, word), "wanted %d and %s, got: %s", status, word, r.text);
    free(r.text);
}

#define HELLO "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}"
