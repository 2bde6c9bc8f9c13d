#include "handlers/channel_job.h"

#include "handlers/access.h"
#include "handlers/etag.h"
#include "handlers/views.h"

#include <string.h>

static int copy(const char *s, char **ret, struct err *err)
{
    *ret = s ? strdup(s) : NULL;
    return s && !*ret ? err_no_memory(err) : 0;
}

void channel_job_free(void *arg)
{
    struct channel_job *job = arg;

    if (!job)
        return;
    free(job->key);
    free(job->if_match);
    free(job->if_none_match);
    channel_free(job->after);
    json_decref(job->canceled);
    free(job);
}

struct channel_job *channel_job_new(struct http_req *req, struct err *err)
{
    const char *key = http_path_param(req, "key");

    if (access_channel(req, key, SCOPE_CHANNELS, err) < 0)
        return NULL;
    struct channel_job *job = calloc(1, sizeof *job);
    if (!job) {
        err_no_memory(err);
        return NULL;
    }
    job->sv = service_of(req);
    if (copy(key, &job->key, err) < 0 || copy(http_header(req, "If-Match"), &job->if_match, err) < 0 ||
        copy(http_header(req, "If-None-Match"), &job->if_none_match, err) < 0) {
        channel_job_free(job);
        return NULL;
    }
    return job;
}

int channel_job_look(struct store *st, struct channel_job *job, struct err *err)
{
    struct err found;

    channel_free(STEAL(job->after));
    int rc = channels_get(st, job->key, &job->after, &found);
    if (rc < 0 && found.code != ERR_NOT_FOUND) {
        *err = found;
        return -1;
    }
    if (etag_check(job->if_match, job->if_none_match, job->after, err) < 0)
        return -1;
    if (rc < 0)
        *err = found;
    return rc;
}

enum http_result channel_reply(struct http_req *req, unsigned status, const struct channel *c)
{
    char tag[ETAG_SIZE];

    etag_of(c, tag);
    http_header_add(req, "ETag", "%s", tag);
    return http_reply_json(req, status, channel_view(service_of(req), c));
}
