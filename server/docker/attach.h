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
