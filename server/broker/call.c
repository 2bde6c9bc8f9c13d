#include "broker/slot.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/proc.h"
#include "broker/answer.h"

#include <string.h>
#include <sys/socket.h>

static int check_bound(struct broker *broker, struct err *err)
{
    pthread_mutex_lock(&broker->lock);
    bool bound = broker->state == SLOT_BOUND;
    pthread_mutex_unlock(&broker->lock);
    return bound ? 0 : err_set(err, ERR_GONE, "no turn is bound");
}

int call_admit(struct broker *broker, int fd, struct err *err)
{
    struct ucred peer = {0};
    socklen_t len = sizeof peer;

    if (check_bound(broker, err) < 0)
        return -1;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || peer.pid <= 0 ||
        !proc_in_cgroup(peer.pid, broker->container_id))
        return err_set(err, ERR_FORBIDDEN, "the peer is not in the turn's container");
    return 0;
}

static int begin(struct broker *broker, struct err *err)
{
    pthread_mutex_lock(&broker->lock);
    int rc = broker->state == SLOT_BOUND ? budget_take_call(&broker->budget, err)
                                         : err_set(err, ERR_GONE, "no turn is bound");
    if (rc == 0) {
        broker->stats.calls++;
        broker->stats.model_calls++;
    }
    broker->stats.budget_spent = broker->budget.spent;
    pthread_mutex_unlock(&broker->lock);
    return rc;
}

/* Reports first: as long as the call counts as in flight, broker_close waits. */
static void end(struct broker *broker, const struct broker_call *call, enum err_code code)
{
    if (broker->on_call)
        broker->on_call(broker->arg, call);
    pthread_mutex_lock(&broker->lock);
    broker->stats.prompt_tokens += call->prompt_tokens;
    broker->stats.completion_tokens += call->completion_tokens;
    if (code == ERR_NONE)
        broker->stats.model_refused = false;
    else if (code == ERR_UPSTREAM || code == ERR_TIMEOUT)
        broker->stats.model_refused = true;
    budget_end_call(&broker->budget);
    pthread_cond_broadcast(&broker->idle);
    pthread_mutex_unlock(&broker->lock);
}

int64_t call_deadline(int64_t turn_deadline, int64_t now)
{
    int64_t latest = now + LIMIT_BROKER_CALL_MS;

    return turn_deadline < latest ? turn_deadline : latest;
}

char *call_model(struct broker *broker, const char *body, size_t len, int *status)
{
    struct json_faults faults = {0};
    struct model_reply reply = {0};
    struct err err = {0};
    int64_t start = clock_mono_ms();

    if (begin(broker, &err) < 0) {
        *status = answer_status(err.code);
        return answer_error(err.code, NULL);
    }
    struct broker_call call = {
        .kind = "model", .name = broker->env->name, .started_wall_ms = clock_wall_ms(), .bytes_in = len};
    const struct model_question question = {.body = body,
                                            .body_len = len,
                                            .traceparent = broker->traceparent,
                                            .deadline = call_deadline(broker->deadline, start),
                                            .cancel_fd = broker->cancel_fd};
    int rc = model_call(broker->env, &question, &reply, &faults, &err);
    char *text = rc == 0 ? reply.text : answer_error(err.code, &faults);
    *status = rc == 0 ? 200 : answer_status(err.code);
    if (rc < 0 && *status >= 500)
        log_line(LOG_WARN, broker->turn_id, "model call: %s", err.text);
    call.status = *status;
    call.duration_ms = clock_mono_ms() - start;
    call.bytes_out = text ? strlen(text) : 0;
    call.prompt_tokens = reply.prompt_tokens;
    call.completion_tokens = reply.completion_tokens;
    end(broker, &call, rc == 0 ? ERR_NONE : err.code);
    json_faults_free(&faults);
    return text;
}
