/* handlers/channel_job.h: what PUT, DELETE and reset of one channel share. */
#pragma once

#include "handlers/commit.h"
#include "handlers/service.h"
#include "storage/channels.h"

struct channel_job {
    struct service *sv;
    char *key, *if_match, *if_none_match; /* the latter two NULL when absent */
    bool enabled;                         /* wanted */
    bool created;                         /* result: it was not there before */
    struct channel *after;                /* result */
    json_t *canceled;                     /* result of DELETE: ids of turns */
};

/* From path and conditions, after the caller's right to the channel was checked. NULL: *err says why. */
struct channel_job *channel_job_new(struct http_req *req, struct err *err);
void channel_job_free(void *job);
/* The channel as it is now into job->after; ERR_NOT_FOUND, ERR_PRECONDITION. For use inside a job. */
MUST_USE int channel_job_look(struct store *st, struct channel_job *job, struct err *err);
/* Its view with its ETag. */
enum http_result channel_reply(struct http_req *req, unsigned status, const struct channel *c);
