/* server/broker/watchdog.h: cuts off clients that are slow on purpose. libmicrohttpd's own time-out counts
 * inactivity only, so that a byte now and then would hold a connection for ever.
 *
 * One instance with one thread serves all brokers. Every phase of a connection (head, body, reading the
 * answer) has the same LIMIT_BROKER_HEAD_S, so the list is in order of time by itself. Thread-safe; the lock
 * is the watchdog's own and nothing else is called under it. */
#pragma once

#include "base/err.h"

#include <stdbool.h>

struct watchdog;

/* A connection as the watchdog knows it; memory of the caller, zeroed, until watchdog_rest. */
struct watched {
    int fd; /* open as long as the entry is armed */
    bool armed;
    int64_t deadline;
    struct watched *before, *after;
};

MUST_USE int watchdog_new(struct watchdog **ret, struct err *err);
void watchdog_free(struct watchdog *dog); /* nothing may be armed; accepts NULL */
DEFINE_CLEANUP(struct watchdog *, watchdog_free)

/* Starts the time anew: shutdown(2) on w->fd when it runs out. */
void watchdog_arm(struct watchdog *dog, struct watched *w);
/* No time runs. */
void watchdog_rest(struct watchdog *dog, struct watched *w);
