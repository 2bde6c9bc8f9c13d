/* server/broker/slot.h: struct broker as the room's own files see it. */
#pragma once

#include "base/limits.h"
#include "broker/broker.h"
#include "broker/budget.h"
#include "broker/env.h"
#include "broker/model.h"

#include <microhttpd.h>
#include <pthread.h>

struct broker {
    struct broker_env *env;
    char path[LIMIT_SOCKET_PATH + 1];
    int cancel_fd; /* eventfd: readable from broker_close on */
    struct MHD_Daemon *daemon;
    unsigned connections; /* touched by the listening thread only */

    /* Guards what follows. Nothing else is locked and nothing of others is called under it. */
    pthread_mutex_t lock;
    pthread_cond_t idle; /* signalled when a call has ended */
    enum { SLOT_UNBOUND, SLOT_BOUND, SLOT_CLOSED } state;
    struct budget budget;
    struct broker_stats stats;

    /* Written before state becomes SLOT_BOUND and never again: may be read without the lock afterwards. */
    char turn_id[64], container_id[128], traceparent[64];
    int64_t deadline;
    void (*on_call)(void *arg, const struct broker_call *call);
    void *arg;
};

/* Makes the socket and starts to listen / stops, and waits for every thread. (listener.c) */
MUST_USE int listener_start(struct broker *broker, struct err *err);
void listener_stop(struct broker *broker);

/* ERR_GONE unless a turn is bound and not over; ERR_FORBIDDEN when the peer of the socket is not in the
 * turn's container. (call.c) */
MUST_USE int call_admit(struct broker *broker, int fd, struct err *err);
/* When a call that starts now must have ended: its own limit, or the turn's deadline if that is earlier. All
 * in milliseconds of the monotonic clock. Pure. (mission.md 6) */
int64_t call_deadline(int64_t turn_deadline, int64_t now);
/* One call from the guest's body to the body of the answer, which the caller frees; NULL: no memory. Takes
 * its place in the budget, counts, logs a failure of the model, reports to on_call. */
char *call_model(struct broker *broker, const char *body, size_t len, int *status);
