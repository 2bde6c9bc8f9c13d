#include "base/clock.h"
#include "handlers/access.h"
#include "handlers/channel_job.h"
#include "handlers/resources.h"
#include "handlers/views.h"

static int reset_job(struct store *st, void *arg, struct err *err)
{
    struct channel_job *job = arg;

    if (channel_job_look(st, job, err) < 0 || channels_reset(st, job->key, clock_wall_ms(), err) < 0)
        return -1;
    channel_free(STEAL(job->after));
    return channels_get(st, job->key, &job->after, err);
}

static enum http_result reset_done(struct http_req *req, const struct err *result, void *arg)
{
    const struct channel_job *job = arg;

    return result->code == ERR_NONE ? channel_reply(req, 200, job->after) : http_problem(req, result, NULL);
}

static const struct commit_ops reset_ops = {reset_job, NULL, reset_done, channel_job_free};

enum http_result channel_reset(struct http_req *req)
{
    struct err err;
    struct channel_job *job = channel_job_new(req, &err);

    return job ? commit(req, &reset_ops, job) : http_problem(req, &err, NULL);
}

static int look_job(struct store *st, void *arg, struct err *err)
{
    return channel_job_look(st, arg, err);
}

/* 200 with the channel and whether a turn was there to be stopped; its end comes on its own way. */
enum http_result channel_stop(struct http_req *req)
{
    struct service *sv = service_of(req);
    struct err err;
    struct channel_job *job = channel_job_new(req, &err);

    if (!job || db_read(sv->db, look_job, job, &err) < 0) {
        channel_job_free(job);
        return http_problem(req, &err, NULL);
    }
    bool stopped = sv->host.stop_channel(sv->host.host, job->key);
    json_t *view = channel_view(sv, job->after);
    channel_job_free(job);
    if (view && json_object_set_new(view, "stopped", json_boolean(stopped)) < 0) {
        json_decref(view);
        view = NULL;
    }
    return http_reply_json(req, 200, view);
}
