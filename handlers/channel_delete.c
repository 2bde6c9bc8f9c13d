#include "base/clock.h"
#include "handlers/access.h"
#include "handlers/channel_job.h"
#include "handlers/resources.h"
#include "storage/turns.h"

#include <string.h>

static int refuse_if_running(const struct turn *t, void *arg, struct err *err)
{
    const struct channel_job *job = arg;

    if (strcmp(t->channel, job->key) != 0)
        return 0;
    return err_set(err, ERR_CONFLICT, "a turn of the channel runs; stop it first");
}

static void note_canceled(const char *id, void *arg)
{
    struct channel_job *job = arg;

    /* A lost note costs nothing: the queue finds the turn ended when its time comes. */
    json_array_append_new(job->canceled, json_string(id));
}

static int delete_job(struct store *st, void *arg, struct err *err)
{
    struct channel_job *job = arg;

    json_array_clear(job->canceled); /* from an earlier try */
    if (channel_job_look(st, job, err) < 0 || turns_each(st, TURN_RUNNING, refuse_if_running, job, err) < 0)
        return -1;
    if (turns_cancel_queued(st, job->key, END_CANCELED, clock_wall_ms(), note_canceled, job, err) < 0)
        return -1;
    return channels_delete(st, job->key, -1, err);
}

/* Takes the canceled turns out of the queue and tells those who wait for them. */
static void deleted(void *arg, const struct err *result)
{
    const struct channel_job *job = arg;
    size_t i;
    json_t *id;

    if (result->code != ERR_NONE)
        return;
    json_array_foreach(job->canceled, i, id) {
        queue_remove(job->sv->queue, json_string_value(id));
        bus_publish(job->sv->bus, json_string_value(id));
    }
}

static enum http_result delete_done(struct http_req *req, const struct err *result, void *arg)
{
    (void)arg;
    return result->code == ERR_NONE ? http_reply_empty(req) : http_problem(req, result, NULL);
}

static const struct commit_ops delete_ops = {delete_job, deleted, delete_done, channel_job_free};

enum http_result channel_delete(struct http_req *req)
{
    struct queue_channel_info info = {0};
    struct err err;
    struct channel_job *job = channel_job_new(req, &err);

    if (!job)
        return http_problem(req, &err, NULL);
    queue_channel(job->sv->queue, job->key, &info);
    job->canceled = json_array();
    if (!job->canceled || info.busy) {
        if (info.busy)
            err_set(&err, ERR_CONFLICT,
                    "a turn of the channel runs, or its container is not proven dead yet");
        else
            err_no_memory(&err);
        channel_job_free(job);
        return http_problem(req, &err, NULL);
    }
    return commit(req, &delete_ops, job);
}
