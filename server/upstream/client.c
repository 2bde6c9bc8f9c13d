#include "upstream/client.h"

#include "base/secret.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

struct sink {
    struct buf *answer;
    struct err *err;
};

static size_t take(char *data, size_t size, size_t n, void *arg)
{
    struct sink *s = arg;

    return buf_add(s->answer, data, size * n, s->err) < 0 ? 0 : size * n;
}

static struct curl_slist *headers_of(const struct client_request *req)
{
    struct curl_slist *list = curl_slist_append(NULL, "Accept: application/json, application/problem+json");
    char line[256];

    if (list && req->body)
        list = curl_slist_append(list, "Content-Type: application/json");
    if (list && req->header)
        list = curl_slist_append(list, req->header);
    if (list && req->key) {
        snprintf(line, sizeof line, "Authorization: Bearer %s", req->key);
        list = curl_slist_append(list, line);
        secret_wipe(line, sizeof line);
    }
    return list ? curl_slist_append(list, "Expect:") : NULL;
}

int client_call(const struct client_request *req, int *status, struct buf *answer, struct err *err)
{
    CLEANUP(free_str) char *url = NULL;
    struct sink sink = {answer, err};
    char why[CURL_ERROR_SIZE] = "";
    long code = 0;
    size_t base_len = strlen(req->base);

    while (base_len > 0 && req->base[base_len - 1] == '/')
        base_len--;
    if (asprintf(&url, "%.*s%s", (int)base_len, req->base, req->path) < 0) {
        url = NULL;
        return err_no_memory(err);
    }
    CURL *curl = curl_easy_init();
    struct curl_slist *headers = headers_of(req);
    err->code = ERR_NONE;
    if (!curl || !headers) {
        curl_slist_free_all(headers);
        curl_easy_cleanup(curl);
        return err_no_memory(err);
    }
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, req->method);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)req->timeout_ms);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, 10000L);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &sink);
    if (req->unix_socket)
        curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, req->unix_socket);
    if (req->body)
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, req->body);
    CURLcode rc = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code);
    for (struct curl_slist *h = headers; h; h = h->next)
        if (strncmp(h->data, "Authorization:", 14) == 0)
            secret_wipe(h->data, strlen(h->data));
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    if (rc == CURLE_OK) {
        *status = (int)code;
        return 0;
    }
    if (rc == CURLE_WRITE_ERROR && err->code != ERR_NONE)
        return -1;
    return err_set(err, ERR_UPSTREAM, "%s: %s", req->unix_socket ? req->unix_socket : req->base,
                   why[0] ? why : curl_easy_strerror(rc));
}

int client_escape(const char *segment, char **ret, struct err *err)
{
    char *escaped = curl_easy_escape(NULL, segment, (int)strlen(segment));
    char *copy = escaped ? strdup(escaped) : NULL;

    curl_free(escaped);
    if (!copy)
        return err_no_memory(err);
    *ret = copy;
    return 0;
}

int upstream_global_init(struct err *err)
{
    return curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK
               ? 0
               : err_set(err, ERR_SYSTEM, "libcurl does not start");
}

void upstream_global_end(void)
{
    curl_global_cleanup();
}
