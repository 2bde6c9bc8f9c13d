/* events/bus.h: who wants to hear that something about a topic has changed. No payload: listeners read the
 * rows.
 *
 * Topics are turn ids ("turn_…") and key ids. Thread-safe. Lock order: the bus's lock, then whatever `wake`
 * takes; `wake` runs under the bus's lock, must be quick, must not block and must not call the bus. */
#pragma once

#include "base/err.h"

struct bus;

MUST_USE int bus_new(struct bus **ret, struct err *err);
void bus_free(struct bus *bus); /* nobody is subscribed any more; accepts NULL */

struct bus_sub; /* opaque; one per listener and topic */
/* From now on every publish to the topic calls wake(arg). */
MUST_USE int bus_subscribe(struct bus *bus, const char *topic, void (*wake)(void *arg), void *arg,
                           struct bus_sub **ret, struct err *err);
/* When it returns, wake neither runs nor will run. Accepts NULL. */
void bus_unsubscribe(struct bus *bus, struct bus_sub *sub);
void bus_publish(struct bus *bus, const char *topic);
