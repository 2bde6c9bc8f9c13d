#include "base/clock.h"
#include "handlers/access.h"
#include "handlers/channel_job.h"
#include "handlers/resources.h"
#include "schemas/schema.h"

struct lookup {
    const char *key;
    struct channel *channel;
};

static int get_job(struct store *st, void *arg, struct err *err)
{
    struct lookup *l = arg;

    return channels_get(st, l->key, &l->channel, err);
}

enum http_result channel_read(struct http_req *req)
{
    struct lookup l = {.key = http_path_param(req, "key")};
    struct err err;

    if (access_channel(req, l.key, SCOPE_CHANNELS, &err) < 0 ||
        db_read(service_of(req)->db, get_job, &l, &err) < 0)
        return http_problem(req, &err, NULL);
    CLEANUP(channel_free_p) struct channel *channel = l.channel;
    return channel_reply(req, 200, channel);
}

static int put_job(struct store *st, void *arg, struct err *err)
{
    struct channel_job *job = arg;
    int rc = channel_job_look(st, job, err);

    if (rc < 0 && err->code != ERR_NOT_FOUND)
        return -1;
    job->created = rc < 0;
    if (channels_put(st, job->key, job->enabled, -1, clock_wall_ms(), err) < 0)
        return -1;
    channel_free(STEAL(job->after));
    return channels_get(st, job->key, &job->after, err);
}

static enum http_result put_done(struct http_req *req, const struct err *result, void *arg)
{
    const struct channel_job *job = arg;

    if (result->code != ERR_NONE)
        return http_problem(req, result, NULL);
    return channel_reply(req, job->created ? 201 : 200, job->after);
}

static const struct commit_ops put_ops = {put_job, NULL, put_done, channel_job_free};

enum http_result channel_put(struct http_req *req)
{
    CLEANUP(json_faults_free) struct json_faults faults = {0};
    CLEANUP(json_free) json_t *body = NULL;
    struct err err;
    int rc = http_body_json(req, &body, &err);

    if (rc == 0 && schema_check("channel_put", body, "", &faults) < 0)
        rc = json_faults_error(&faults, &err);
    struct channel_job *job = rc == 0 ? channel_job_new(req, &err) : NULL;
    if (!job)
        return http_problem(req, &err, &faults);
    job->enabled = json_is_true(json_object_get(body, "enabled"));
    return commit(req, &put_ops, job);
}
