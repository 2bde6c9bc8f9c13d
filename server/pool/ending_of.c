#include "pool/internal.h"

#include "schemas/protocol.h"

/* What made a worker fail that says so itself, or that ended without a reply. The cgroup's own counts speak
 * first: a worker's exit code is only what it made of them. (mission.md 1) */
static enum ending why_failed(const struct box_result *r, enum ending otherwise)
{
    if (r->oom)
        return END_OUT_OF_MEMORY;
    if (r->pids_hits >
        0) /* a fork bomb's children may be killed for memory as well: that is not what is wrong */
        return END_PID_LIMIT;
    if (r->oom_kills > 0)
        return END_OUT_OF_MEMORY;
    return otherwise;
}

static enum ending judge_reply(const struct box_result *r, const struct broker_stats *stats, bool late,
                               json_t **reply)
{
    struct worker_reply parsed;
    struct err err;

    if (worker_reply_parse(r->out.data ? r->out.data : "", r->out.len, &parsed, &err) < 0)
        return err.code == ERR_NO_MEMORY ? END_WORKER_FAILED : END_INVALID_REPLY;
    if (parsed.ok) {
        *reply = parsed.reply;
        return END_NONE;
    }
    json_decref(parsed.reply);
    if (late) /* the broker gives up a call at the turn's deadline, and the worker may tell of it first */
        return why_failed(r, END_TIMEOUT);
    if (stats->budget_spent)
        return END_BUDGET_SPENT;
    if (stats->model_refused)
        return END_MODEL_REFUSED;
    return why_failed(r, END_WORKER_FAILED);
}

enum ending ending_of(const struct box_result *r, const struct broker_stats *stats, enum ending asked,
                      bool late, json_t **reply)
{
    switch (r->end) {
    case BOX_REPLY:
        return judge_reply(r, stats, late, reply);
    case BOX_EXITED:
        if (r->exit_code == 0 && r->out.len > 0)
            return judge_reply(r, stats, late, reply);
        if (r->signal > 0)
            return why_failed(r, END_SIGNAL);
        return why_failed(r, r->exit_code == 0 ? END_INVALID_REPLY : END_EXIT_CODE);
    case BOX_TIMEOUT: /* one that ran into a limit and hung is told so: it says what to do, "timeout" does not
                       */
        return why_failed(r, END_TIMEOUT);
    case BOX_OUTPUT_LIMIT:
        return END_OUTPUT_LIMIT;
    case BOX_ABORTED:
        return asked == END_NONE ? END_CANCELED : asked;
    case BOX_ENGINE_LOST:
        return END_ENGINE_UNAVAILABLE;
    }
    return END_WORKER_FAILED;
}
