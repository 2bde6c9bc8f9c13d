/* http/stream.h: an answer that goes on: bytes are sent as they become known, and in between the connection
 * waits without a thread.
 *
 * A handler calls http_stream, hands the ticket to whoever knows of news, and returns HTTP_DONE. From then on
 * the server asks next() for bytes, on the request's server thread: once at the beginning, again when what
 * came before is with the kernel and there was HTTP_MORE, and after HTTP_WAIT when
 *
 * - the ticket was woken (HTTP_WOKEN): any number of times, and a wake between two calls is not lost;
 * - nothing was sent for http_config.beat_ms, or the client may have left (HTTP_DEADLINE): bytes that mean
 *   nothing keep proxies from closing, and find out who is still there;
 * - the server stops (HTTP_STOPPING, from then on every time): next must come to HTTP_END soon.
 *
 * Nothing is kept per stream but what next() gave last, so a client that reads slowly holds up itself alone:
 * it is cut off when it takes longer than http_config.reply_ms over a piece. What a client has not read by
 * then waits in a send buffer of LIMIT_HTTP_STREAM_SEND. */
#pragma once

#include "base/buf.h"
#include "http/park.h"

enum http_flow {
    HTTP_MORE,  /* there is more: ask again when this is out */
    HTTP_WAIT,  /* that is all for now */
    HTTP_END,   /* that was all */
    HTTP_BREAK, /* it cannot go on: the connection is closed in the middle, and the client knows it */
};

struct http_stream_ops {
    /* Adds to `out`, which is empty and takes LIMIT_HTTP_STREAM_PIECE. Short reads only. The first call
     * should give something: the library holds the head back for it. HTTP_MORE without bytes asks again at
     * once. */
    enum http_flow (*next)(void *arg, enum http_why why, struct buf *out);
    void (*free)(void *arg); /* once, on the server thread, however the request ends */
};

/* Makes this request's answer a 200 of this type (a literal), the last one of its connection. Takes arg over,
 * also when another answer replaces it (http_problem). Returns the ticket with a reference for the caller, to
 * be given back with http_ticket_release; NULL with ERR_NO_MEMORY: arg stays the caller's. Once per request,
 * not beside a park.
 */
struct http_ticket *http_stream(struct http_req *req, const char *type, const struct http_stream_ops *ops,
                                void *arg, struct err *err);
