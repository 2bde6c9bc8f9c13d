#include "broker/slot.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

static int make(struct broker *broker, const char *dir, struct err *err)
{
    int len = snprintf(broker->path, sizeof broker->path, "%s/broker.sock", dir);

    if (len < 0 || len > LIMIT_SOCKET_PATH) {
        broker->path[0] = '\0';
        return err_set(err, ERR_CONFIG, "the path of the broker's socket is longer than %d characters",
                       LIMIT_SOCKET_PATH);
    }
    broker->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (broker->cancel_fd < 0)
        return err_errno(err, errno, "eventfd");
    return listener_start(broker, err);
}

int broker_new(struct broker_env *env, const char *dir, struct broker **ret, struct err *err)
{
    struct broker *broker = calloc(1, sizeof *broker);

    if (!broker)
        return err_no_memory(err);
    broker->env = env;
    broker->cancel_fd = -1;
    pthread_mutex_init(&broker->lock, NULL);
    pthread_cond_init(&broker->idle, NULL);
    if (make(broker, dir, err) < 0) {
        broker_free(broker);
        return err_wrap(err, "broker");
    }
    *ret = broker;
    return 0;
}

static bool fits(char *out, size_t size, const char *text)
{
    size_t len = strlen(text);

    if (len >= size)
        return false;
    memcpy(out, text, len + 1);
    return true;
}

static int bind_locked(struct broker *broker, const struct broker_turn *turn, struct err *err)
{
    if (broker->state != SLOT_UNBOUND)
        return err_set(err, ERR_CONFLICT, "the broker had a turn already");
    if (!turn->container_id[0] || !fits(broker->turn_id, sizeof broker->turn_id, turn->turn_id) ||
        !fits(broker->container_id, sizeof broker->container_id, turn->container_id) ||
        !fits(broker->traceparent, sizeof broker->traceparent, turn->traceparent))
        return err_set(err, ERR_INVALID, "an id of the turn is empty or too long");
    broker->deadline = turn->deadline;
    broker->on_call = turn->on_call;
    broker->arg = turn->arg;
    broker->budget.calls_left = broker->env->max_calls;
    broker->state = SLOT_BOUND;
    return 0;
}

int broker_bind(struct broker *broker, const struct broker_turn *turn, struct err *err)
{
    pthread_mutex_lock(&broker->lock);
    int rc = bind_locked(broker, turn, err);
    pthread_mutex_unlock(&broker->lock);
    return rc;
}

/* Bounded, since all that a call waits for also waits for cancel_fd. */
void broker_close(struct broker *broker)
{
    pthread_mutex_lock(&broker->lock);
    broker->state = SLOT_CLOSED;
    if (broker->cancel_fd >= 0)
        eventfd_write(broker->cancel_fd, 1);
    while (broker->budget.busy)
        pthread_cond_wait(&broker->idle, &broker->lock);
    pthread_mutex_unlock(&broker->lock);
}

void broker_stats(struct broker *broker, struct broker_stats *ret)
{
    pthread_mutex_lock(&broker->lock);
    *ret = broker->stats;
    pthread_mutex_unlock(&broker->lock);
}

void broker_free(struct broker *broker)
{
    if (!broker)
        return;
    broker_close(broker);
    listener_stop(broker);
    if (broker->cancel_fd >= 0)
        close(broker->cancel_fd);
    pthread_cond_destroy(&broker->idle);
    pthread_mutex_destroy(&broker->lock);
    free(broker);
}
