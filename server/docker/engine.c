#include "docker/engine.h"

#include <ctype.h>
#include <curl/curl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/un.h>

#define IDLE_MAX       16   /* connections kept open between calls */
#define CONNECT_MS     2000 /* to a socket on this host */
#define QUOTE_MAX      400  /* of the engine's own text in an error */
#define PATH_MAX_BYTES 2048

struct engine {
    char *socket_path;
    atomic_uint api; /* minor version */
    pthread_mutex_t lock;
    CURL *idle[IDLE_MAX]; /* under lock */
    unsigned idle_count;  /* under lock */
};

int engine_new(const char *socket_path, struct engine **ret, struct err *err)
{
    if (socket_path[0] != '/' || strlen(socket_path) >= sizeof((struct sockaddr_un *)0)->sun_path)
        return err_set(err, ERR_CONFIG, "the engine's socket must be an absolute path of at most %zu bytes",
                       sizeof((struct sockaddr_un *)0)->sun_path - 1);
    struct engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        return err_no_memory(err);
    engine->socket_path = strdup(socket_path);
    if (!engine->socket_path) {
        free(engine);
        return err_no_memory(err);
    }
    atomic_init(&engine->api, ENGINE_API_MIN);
    pthread_mutex_init(&engine->lock, NULL);
    *ret = engine;
    return 0;
}

void engine_free(struct engine *engine)
{
    if (!engine)
        return;
    for (unsigned i = 0; i < engine->idle_count; i++)
        curl_easy_cleanup(engine->idle[i]);
    pthread_mutex_destroy(&engine->lock);
    free(engine->socket_path);
    free(engine);
}

const char *engine_socket(const struct engine *engine)
{
    return engine->socket_path;
}

unsigned engine_api(const struct engine *engine)
{
    return atomic_load(&engine->api);
}

int engine_path_add(struct buf *out, const char *name, struct err *err)
{
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;
        bool plain = (c < 128 && isalnum(c)) || strchr("-._~/:@", c);
        if ((plain ? buf_add(out, name, 1, err) : buf_addf(out, err, "%%%02X", c)) < 0)
            return -1;
    }
    return 0;
}

static CURL *take_connection(struct engine *engine)
{
    CURL *curl = NULL;

    pthread_mutex_lock(&engine->lock);
    if (engine->idle_count > 0)
        curl = engine->idle[--engine->idle_count];
    pthread_mutex_unlock(&engine->lock);
    return curl ? curl : curl_easy_init();
}

static void give_connection(struct engine *engine, CURL *curl)
{
    pthread_mutex_lock(&engine->lock);
    if (engine->idle_count < IDLE_MAX) {
        engine->idle[engine->idle_count++] = curl;
        curl = NULL;
    }
    pthread_mutex_unlock(&engine->lock);
    if (curl)
        curl_easy_cleanup(curl);
}

struct answer {
    struct buf text;
    struct err err; /* why the answer was not taken */
    int abort_fd;
};

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
    struct answer *answer = arg;

    if (buf_add(&answer->text, data, size * count, &answer->err) < 0)
        return 0;
    return size * count;
}

/* curl calls it whenever something happens, and once a second. */
static int on_progress(void *arg, curl_off_t down_total, curl_off_t down, curl_off_t up_total, curl_off_t up)
{
    const struct answer *answer = arg;
    struct pollfd p = {.fd = answer->abort_fd, .events = POLLIN};

    (void)down_total, (void)down, (void)up_total, (void)up;
    return poll(&p, 1, 0) > 0;
}

/* All that a call before this one has set is set again: a reset that runs out of memory does not tell, and
 * leaves options without their defaults. False when curl refuses an option, which means it is out of memory
 * or lacks Unix sockets. */
static bool set_options(CURL *curl, const struct engine *engine, const char *method, const char *url,
                        const char *body, struct curl_slist *headers, int timeout_ms, struct answer *answer)
{
    bool ok = true;
#define SET(option, value) ok = ok && curl_easy_setopt(curl, option, value) == CURLE_OK
    SET(CURLOPT_UNIX_SOCKET_PATH, engine->socket_path);
    SET(CURLOPT_URL, url);
    SET(CURLOPT_PROTOCOLS_STR, "http");
    SET(CURLOPT_PROXY, ""); /* whatever the environment says */
    SET(CURLOPT_PATH_AS_IS, 1L);
    SET(CURLOPT_NOSIGNAL, 1L); /* no SIGALRM in a process of threads */
    SET(CURLOPT_HTTPGET, 1L);
    SET(CURLOPT_CUSTOMREQUEST, method);
    SET(CURLOPT_HTTPHEADER, headers);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)(timeout_ms < CONNECT_MS ? timeout_ms : CONNECT_MS));
    SET(CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, answer);
    SET(CURLOPT_NOPROGRESS, answer->abort_fd < 0 ? 1L : 0L);
    SET(CURLOPT_XFERINFOFUNCTION, on_progress);
    SET(CURLOPT_XFERINFODATA, answer);
    if (body || strcmp(method, "POST") == 0) {
        SET(CURLOPT_POSTFIELDS, body ? body : ""); /* borrowed until the call ends */
        SET(CURLOPT_POSTFIELDSIZE, (long)(body ? strlen(body) : 0));
    }
#undef SET
    return ok;
}

static int transport_error(CURLcode code, struct answer *answer, const char *method, const char *path,
                           struct err *err)
{
    if (code == CURLE_OUT_OF_MEMORY || answer->err.code == ERR_NO_MEMORY)
        return err_no_memory(err);
    if (code == CURLE_WRITE_ERROR)
        return err_set(err, ERR_ENGINE, "%s %s: the answer has %s", method, path, answer->err.text);
    if (code == CURLE_ABORTED_BY_CALLBACK)
        return err_set(err, ERR_CANCELED, "%s %s: given up", method, path);
    return err_set(err, ERR_ENGINE_AWAY, "%s %s: %s", method, path, curl_easy_strerror(code));
}

static int status_error(long status, const struct buf *text, const char *method, const char *path,
                        struct err *err)
{
    json_t *json = NULL;
    struct err ignored;
    const char *said = text->len > 0 ? text->data : "no text";

    if (text->len > 0 && json_parse(text->data, text->len, &json, &ignored) == 0 && json_str(json, "message"))
        said = json_str(json, "message");
    err_set(err, ERR_ENGINE, "%s %s: status %ld: %.*s", method, path, status, QUOTE_MAX, said);
    json_decref(json);
    return -1;
}

/* The whole exchange on one connection. */
static int exchange(CURL *curl, struct engine *engine, const char *method, const char *path, const char *url,
                    const char *body, int timeout_ms, int *status, struct answer *answer, struct err *err)
{
    struct curl_slist *headers = NULL, *more;
    long code = 0;

    /* No "Expect": the engine takes every body, and waiting for a 100 costs a round trip. */
    if ((more = curl_slist_append(headers, "Expect:")))
        headers = more;
    if (more && body && (more = curl_slist_append(headers, "Content-Type: application/json")))
        headers = more;
    if (!more || !set_options(curl, engine, method, url, body, headers, timeout_ms, answer)) {
        curl_slist_free_all(headers);
        return err_no_memory(err);
    }
    CURLcode sent = curl_easy_perform(curl);
    curl_slist_free_all(headers);
    if (sent == CURLE_OK || sent == CURLE_WRITE_ERROR)
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code);
    *status = (int)code;
    if (sent != CURLE_OK)
        return transport_error(sent, answer, method, path, err);
    if (code >= 300 && code != 304)
        return status_error(code, &answer->text, method, path, err);
    return 0;
}

static int call(struct engine *engine, const char *method, const char *prefix, const char *path,
                const json_t *body, const struct engine_bound *bound, int *status, json_t **ret,
                struct err *err)
{
    int timeout_ms = bound->timeout_ms < 1 ? 1 : bound->timeout_ms;
    CLEANUP(free_str) char *text = NULL;
    CLEANUP(buf_free) struct buf url = BUF_INIT(PATH_MAX_BYTES);
    struct answer answer = {.text = BUF_INIT(ENGINE_ANSWER_MAX), .abort_fd = bound->abort_fd};

    if (buf_addf(&url, err, "http://engine%s%s", prefix, path) < 0)
        return -1;
    if (body && json_text(body, &text, err) < 0)
        return -1;
    CURL *curl = take_connection(engine);
    if (!curl)
        return err_no_memory(err);
    int rc = exchange(curl, engine, method, path, url.data, text, timeout_ms, status, &answer, err);
    if (rc == 0 || *status > 0)
        give_connection(engine, curl);
    else /* what a call leaves behind that broke off must not meet the next one */
        curl_easy_cleanup(curl);
    if (rc == 0 && ret) {
        *ret = NULL;
        if (answer.text.len > 0 && json_parse(answer.text.data, answer.text.len, ret, err) < 0) {
            if (err->code == ERR_INVALID_JSON)
                err->code = ERR_ENGINE;
            rc = err_wrap(err, "%s %s", method, path);
        }
    }
    buf_free(&answer.text);
    return rc;
}

int engine_call_bound(struct engine *engine, const char *method, const char *path, const json_t *body,
                      const struct engine_bound *bound, int *status, json_t **answer, struct err *err)
{
    char prefix[16];
    int ignored;

    if (!status)
        status = &ignored;
    *status = 0;
    snprintf(prefix, sizeof prefix, "/v1.%u", engine_api(engine));
    return call(engine, method, prefix, path, body, bound, status, answer, err);
}

int engine_call(struct engine *engine, const char *method, const char *path, const json_t *body,
                int timeout_ms, int *status, json_t **answer, struct err *err)
{
    const struct engine_bound bound = {.timeout_ms = timeout_ms, .abort_fd = -1};

    return engine_call_bound(engine, method, path, body, &bound, status, answer, err);
}

/* "1.41" → 41; 0 when it is nothing we know. */
static unsigned minor_of(const char *version)
{
    char *end;

    if (!version || strncmp(version, "1.", 2) != 0 || !isdigit((unsigned char)version[2]))
        return 0;
    unsigned long minor = strtoul(version + 2, &end, 10);
    return *end == '\0' && minor < 1000 ? (unsigned)minor : 0;
}

int engine_ping(struct engine *engine, int timeout_ms, struct err *err)
{
    CLEANUP(json_free) json_t *version = NULL;
    const struct engine_bound bound = {.timeout_ms = timeout_ms, .abort_fd = -1};
    int status = 0;

    if (call(engine, "GET", "", "/version", NULL, &bound, &status, &version, err) < 0)
        return -1;
    unsigned theirs = minor_of(json_str(version, "ApiVersion"));
    unsigned least = minor_of(json_str(version, "MinAPIVersion"));
    if (theirs < ENGINE_API_MIN)
        return err_set(err, ERR_ENGINE, "the engine's API version is %.16s; 1.%d or newer is needed",
                       json_str(version, "ApiVersion") ? json_str(version, "ApiVersion") : "not told",
                       ENGINE_API_MIN);
    if (least > ENGINE_API_MAX)
        return err_set(err, ERR_ENGINE,
                       "the engine speaks API 1.%u and newer only, this service at most 1.%d", least,
                       ENGINE_API_MAX);
    atomic_store(&engine->api, theirs < ENGINE_API_MAX ? theirs : ENGINE_API_MAX);
    return 0;
}
