#include "upstream/upstream.h"

#include "base/clock.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define IDLE_LINES         16          /* kept, each with its connection */
#define ANSWER_HEAD_MAX    (64 * 1024) /* bytes of header lines of one answer */
#define CONNECT_TIMEOUT_MS 10000L
#define HEADER_LINE_MAX    (16 * 1024)

struct upstream {
    pthread_mutex_t lock;    /* guards what follows; nothing is called under it */
    CURLM *idle[IDLE_LINES]; /* one call at a time each */
    size_t n_idle;
};

int upstream_new(struct upstream **ret, struct err *err)
{
    struct upstream *up = calloc(1, sizeof *up);

    if (!up)
        return err_no_memory(err);
    pthread_mutex_init(&up->lock, NULL);
    *ret = up;
    return 0;
}

void upstream_free(struct upstream *up)
{
    if (!up)
        return;
    for (size_t i = 0; i < up->n_idle; i++)
        curl_multi_cleanup(up->idle[i]);
    pthread_mutex_destroy(&up->lock);
    free(up);
}

/* NULL: out of memory. */
static CURLM *take_line(struct upstream *up)
{
    CURLM *line = NULL;

    pthread_mutex_lock(&up->lock);
    if (up->n_idle > 0)
        line = up->idle[--up->n_idle];
    pthread_mutex_unlock(&up->lock);
    return line ? line : curl_multi_init();
}

static void give_line(struct upstream *up, CURLM *line)
{
    pthread_mutex_lock(&up->lock);
    if (up->n_idle < IDLE_LINES)
        up->idle[up->n_idle++] = STEAL(line);
    pthread_mutex_unlock(&up->lock);
    curl_multi_cleanup(line); /* accepts NULL */
}

/* --- header lines --------------------------------------------------------------------------------------- */

static void free_headers(struct curl_slist **list)
{
    for (struct curl_slist *h = *list; h; h = h->next)
        secret_wipe(h->data, strlen(h->data));
    curl_slist_free_all(*list);
}

/* `value` NULL: the header is not sent, although libcurl would by itself. */
static int add_header(struct curl_slist **list, const char *name, const char *value, struct err *err)
{
    char text[HEADER_LINE_MAX];

    int n =
        value ? snprintf(text, sizeof text, "%s: %s", name, value) : snprintf(text, sizeof text, "%s:", name);
    if (n < 0 || (size_t)n >= sizeof text)
        return err_set(err, ERR_UPSTREAM, "the %s header is too long", name);
    struct curl_slist *longer = curl_slist_append(*list, text);
    secret_wipe(text, (size_t)n);
    if (!longer)
        return err_no_memory(err);
    *list = longer;
    return 0;
}

static int add_bearer(struct curl_slist **list, const struct secret *bearer, struct err *err)
{
    char text[HEADER_LINE_MAX];

    int n = snprintf(text, sizeof text, "Bearer %s", bearer->data);
    int rc = n < 0 || (size_t)n >= sizeof text ? err_set(err, ERR_UPSTREAM, "the credential is too long")
                                               : add_header(list, "authorization", text, err);
    secret_wipe(text, sizeof text);
    return rc;
}

static int build_headers(const struct upstream_request *req, struct curl_slist **list, struct err *err)
{
    if (add_header(list, "content-type", "application/json", err) < 0 ||
        add_header(list, "accept", "application/json", err) < 0 || add_header(list, "expect", NULL, err) < 0)
        return -1;
    if (req->bearer && add_bearer(list, req->bearer, err) < 0)
        return -1;
    return req->traceparent[0] ? add_header(list, "traceparent", req->traceparent, err) : 0;
}

/* --- one call ------------------------------------------------------------------------------------------- */

struct call {
    struct buf *answer;
    size_t head_len;
    struct err why; /* of a callback that gave up */
    char text[CURL_ERROR_SIZE];
};

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
    struct call *call = arg;

    return buf_add(call->answer, data, size * n, &call->why) < 0 ? 0 : size * n;
}

static size_t on_head(char *data, size_t size, size_t n, void *arg)
{
    struct call *call = arg;

    (void)data;
    call->head_len += size * n;
    if (call->head_len <= ANSWER_HEAD_MAX)
        return size * n;
    err_set(&call->why, ERR_TOO_LARGE, "header lines of more than %d bytes", ANSWER_HEAD_MAX);
    return 0;
}

#define SET(option, value)                                                                                   \
    if (curl_easy_setopt(easy, option, value) != CURLE_OK)                                                   \
    return err_set(err, ERR_INTERNAL, "libcurl refuses " #option)

static int set_options(CURL *easy, const struct upstream_request *req, struct curl_slist *headers,
                       struct call *call, struct err *err)
{
    SET(CURLOPT_URL, req->url);
    SET(CURLOPT_PROTOCOLS_STR, req->allow_http ? "http,https" : "https");
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_SSL_VERIFYPEER, 1L);
    SET(CURLOPT_SSL_VERIFYHOST, 2L);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_QUICK_EXIT, 1L); /* an abort does not wait for the resolver's thread */
    SET(CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
    SET(CURLOPT_HTTPHEADER, headers);
    SET(CURLOPT_POST, 1L);
    SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)req->body_len);
    SET(CURLOPT_POSTFIELDS, req->body);
    SET(CURLOPT_MAXFILESIZE_LARGE,
        (curl_off_t)call->answer->max); /* one that announces more is not waited for */
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, call);
    SET(CURLOPT_HEADERFUNCTION, on_head);
    SET(CURLOPT_HEADERDATA, call);
    SET(CURLOPT_ERRORBUFFER, call->text);
    return 0;
}

static int judge(CURLcode rc, const struct call *call, struct err *err)
{
    switch (rc) {
    case CURLE_OK:
        return 0;
    case CURLE_OUT_OF_MEMORY:
        return err_no_memory(err);
    case CURLE_WRITE_ERROR:
        if (call->why.code == ERR_NO_MEMORY)
            return err_no_memory(err);
        return err_set(err, ERR_UPSTREAM, "the answer is not acceptable: %s", call->why.text);
    case CURLE_OPERATION_TIMEDOUT:
        return err_set(err, ERR_TIMEOUT, "no connection: %s", call->text);
    default:
        return err_set(err, ERR_UPSTREAM, "%s%s%s", curl_easy_strerror(rc), call->text[0] ? ": " : "",
                       call->text);
    }
}

/* Runs the added transfer to its end, the deadline, or the cancel. */
static int drive(CURLM *multi, const struct upstream_request *req, const struct call *call, struct err *err)
{
    for (;;) {
        struct curl_waitfd cancel = {.fd = req->cancel_fd, .events = CURL_WAIT_POLLIN};
        int running = 0, left = 0;
        CURLMsg *msg;

        CURLMcode rc = curl_multi_perform(multi, &running);
        while (rc == CURLM_OK && (msg = curl_multi_info_read(multi, &left)))
            if (msg->msg == CURLMSG_DONE)
                return judge(msg->data.result, call, err);
        int wait_ms = clock_left_ms(req->deadline);
        if (wait_ms == 0)
            return err_set(err, ERR_TIMEOUT, "no answer before the deadline");
        if (rc == CURLM_OK)
            rc = curl_multi_poll(multi, &cancel, req->cancel_fd < 0 ? 0 : 1, wait_ms, NULL);
        if (rc != CURLM_OK)
            return err_set(err, rc == CURLM_OUT_OF_MEMORY ? ERR_NO_MEMORY : ERR_INTERNAL, "libcurl: %s",
                           curl_multi_strerror(rc));
        if (req->cancel_fd >= 0 && cancel.revents)
            return err_set(err, ERR_CANCELED, "the call is not wanted any more");
    }
}

/* The handle is of this call alone: one that is reset for the next may lack its defaults, when there was no
 * memory for them. */
static int exchange(CURLM *line, const struct upstream_request *req, struct curl_slist *headers,
                    struct call *call, long *code, struct err *err)
{
    CURL *easy = curl_easy_init();

    if (!easy)
        return err_no_memory(err);
    int rc = set_options(easy, req, headers, call, err);
    if (rc == 0) {
        rc = curl_multi_add_handle(line, easy) == CURLM_OK ? drive(line, req, call, err) : err_no_memory(err);
        curl_multi_remove_handle(line, easy);
    }
    if (rc == 0 && curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, code) != CURLE_OK)
        rc = err_set(err, ERR_INTERNAL, "libcurl has no status");
    curl_easy_cleanup(easy);
    return rc;
}

int upstream_post(struct upstream *up, const struct upstream_request *req, int *status, struct buf *answer,
                  struct err *err)
{
    CLEANUP(free_headers) struct curl_slist *headers = NULL;
    struct call call = {.answer = answer};
    long code = 0;

    if (build_headers(req, &headers, err) < 0)
        return -1;
    CURLM *line = take_line(up);
    if (!line)
        return err_no_memory(err);
    if (exchange(line, req, headers, &call, &code, err) < 0) {
        curl_multi_cleanup(line); /* what a call leaves behind that broke off must not meet the next one */
        return -1;
    }
    give_line(up, line);
    *status = (int)code;
    return 0;
}
