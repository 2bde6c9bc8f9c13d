/* handlers/commit.h: a write to the database while its request waits without a thread. */
#pragma once

#include "http/response.h"
#include "storage/db.h"

struct commit_ops {
    db_job job; /* writer thread; may run more than once (storage/db.h) */
    /* Writer thread, once, also when the client has left by then: what must follow the commit in any case, or
     * NULL. Quick. */
    void (*committed)(void *arg, const struct err *result);
    /* Server thread: the answer. Not called when the client has left. */
    enum http_result (*then)(struct http_req *req, const struct err *result, void *arg);
    void (*free)(void *arg); /* last */
};

/* Submits the job and parks. Takes arg over in every case. `ops` is constant. */
enum http_result commit(struct http_req *req, const struct commit_ops *ops, void *arg);
