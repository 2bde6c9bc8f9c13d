#include "upstream/upstream.h"

#include <curl/curl.h>
#include <string.h>

static void free_url(CURLU **url)
{
    curl_url_cleanup(*url);
}

static void free_part(char **part)
{
    curl_free(*part);
}

/* Judged on the parsed URL, as the client that will use it reads it. */
int upstream_check_url(const char *url, bool allow_http, struct err *err)
{
    CLEANUP(free_url) CURLU *parsed = curl_url();
    CLEANUP(free_part) char *scheme = NULL;
    CLEANUP(free_part) char *host = NULL;

    if (!parsed)
        return err_no_memory(err);
    CURLUcode rc = curl_url_set(parsed, CURLUPART_URL, url, CURLU_NON_SUPPORT_SCHEME | CURLU_DISALLOW_USER);
    if (rc == CURLUE_OUT_OF_MEMORY)
        return err_no_memory(err);
    if (rc == CURLUE_USER_NOT_ALLOWED)
        return err_set(err, ERR_CONFIG, "the URL must not contain userinfo");
    if (rc != CURLUE_OK)
        return err_set(err, ERR_CONFIG, "the URL is not a valid absolute URL: %s", curl_url_strerror(rc));
    if (curl_url_get(parsed, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
        curl_url_get(parsed, CURLUPART_HOST, &host, 0) != CURLUE_OK || !host[0])
        return err_set(err, ERR_CONFIG, "the URL must have a host");
    if (strcmp(scheme, "http") == 0 && !allow_http)
        return err_set(err, ERR_CONFIG, "the URL must be https (http only with allow_http)");
    if (strcmp(scheme, "https") != 0 && strcmp(scheme, "http") != 0)
        return err_set(err, ERR_CONFIG, "the URL must be https");
    /* libcurl forgives one slash or three, and drops an empty user. */
    const char *authority = strstr(url, "://");
    if (!authority || authority[3] == '/')
        return err_set(err, ERR_CONFIG, "the URL must have a host after two slashes");
    if (memchr(authority + 3, '@', strcspn(authority + 3, "/?#")))
        return err_set(err, ERR_CONFIG, "the URL must not contain userinfo");
    if (strchr(url, '#'))
        return err_set(err, ERR_CONFIG, "the URL must not have a fragment");
    return 0;
}
