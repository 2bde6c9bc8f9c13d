/* broker_client.h: HTTP/1.1 over the broker's Unix socket, one connection a call, as strict as the broker
 * itself. (mission.md section 6, RFC 9112) */
#pragma once

#include "base/buf.h"

struct broker_link {
    const char *socket_path;
    int stop_fd;              /* readable when the worker is to stop; -1: never */
    int64_t deadline_mono_ms; /* of the turn */
};

struct broker_answer {
    int status;      /* 200..599 */
    struct buf body; /* at most 1 MiB */
};

/* POSTs a JSON body. 0 when there is an answer, of any status. ERR_TIMEOUT at the deadline; ERR_CANCELED when
 * told to stop; ERR_UPSTREAM when the broker is not there or does not keep the protocol; ERR_TOO_LARGE. The
 * caller frees ret->body. */
MUST_USE int broker_post(const struct broker_link *link, const char *path, const char *body, size_t len,
                         struct broker_answer *ret, struct err *err);
