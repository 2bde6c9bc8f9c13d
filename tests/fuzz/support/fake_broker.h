/* tests/fuzz/support/fake_broker.h: the broker's side of the socket for the targets of the worker. One thread
 * takes connections one after another, reads a request and gives it to the target. */
#pragma once

#include "base/buf.h"

/* Called on the broker's thread with a request's path and body; adds the whole answer, head included, to
 * `answer`. */
typedef void fake_answer(const char *path, const char *body, size_t len, struct buf *answer);

/* Listens for the rest of the process's life; returns the path of the socket. */
const char *fake_broker_start(fake_answer *answer);
/* Returns when no connection is being served. */
void fake_broker_settle(void);
