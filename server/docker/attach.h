/* docker/attach.h: a container's stdin, stdout and stderr over one hijacked connection.
 *
 * Attach before start: attaching to an exited container answers and then hangs for ever (docker.md 6). What
 * is read comes in frames (docker/frames.h); what is written is stdin, and shutdown(SHUT_WR) ends it. An
 * attach that nobody drains blocks kill and removal of the container: close it first (docker.md 7).
 * Thread-safe. */
#pragma once

#include "docker/engine.h"

/* *ret is a connected socket, non-blocking and close-on-exec, positioned after the answer's head; the caller
 * closes it. `container` is an id or a name. ERR_ENGINE_AWAY: no connection or no answer within timeout_ms;
 * ERR_ENGINE: another answer than 101. */
MUST_USE int attach_open(struct engine *engine, const char *container, int timeout_ms, int *ret,
                         struct err *err);
/* The second half of it: reads the answer's head off a connected, non-blocking socket, up to its empty line
 * and not one byte more, since what follows belongs to the container. The same errors; `deadline`:
 * clock_mono_ms.
 */
MUST_USE int attach_take_head(int fd, int64_t deadline, struct err *err);
