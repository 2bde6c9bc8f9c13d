/* tests/fuzz/support/wire.h: raw HTTP for the targets that talk to a real server over its Unix socket: a
 * plain and strict reading of what is sent (RFC 9112), so that server and reader can be held against each
 * other: a difference in where one request ends and the next begins is what smuggling is made of. */
#pragma once

#include "base/buf.h"

#include <stdbool.h>

/* Where a server listens. */
struct wire_place {
    const char *path; /* of a Unix socket; NULL: TCP on 127.0.0.1 */
    uint16_t port;
};

#define WIRE_REQUESTS 16 /* that are told apart; more are left alone */

struct wire_request {
    char method[24]; /* cut */
    const char *target;
    size_t target_len;
    bool modern; /* HTTP/1.1 */
    bool close;  /* it asks for it, is HTTP/1.0, or has a body in chunks */
    bool expects;
    char *body;
    size_t body_len;
    size_t end; /* where it ends in the stream */
};

struct wire_stream {
    struct wire_request list[WIRE_REQUESTS];
    size_t count; /* whole and sound, up to one that closes */
    enum {
        WIRE_END,     /* nothing more */
        WIRE_PARTIAL, /* the beginning of one more */
        WIRE_BAD,     /* something that is no request */
        WIRE_LOOSE,   /* a sound head, and chunks that are not, or not whole */
        WIRE_MORE,    /* more, behind the last one that is read */
    } tail;
    struct wire_request rest; /* what is known of the one that the tail begins; no body */
};

/* Points into data. */
void wire_read(const char *data, size_t len, struct wire_stream *ret);
void wire_free(struct wire_stream *s);

struct wire_answer {
    int status;
    const char *head; /* from the status line to before the empty line */
    size_t head_len;
    const char *body;
    size_t body_len;
    bool close; /* says that it is the last */
};

#define WIRE_ANSWERS (WIRE_REQUESTS + 8)

struct wire_answers {
    struct buf bytes;
    struct wire_answer list[WIRE_ANSWERS]; /* interim ones left out */
    size_t count;
    size_t read;  /* bytes that make up the answers; the rest is no whole answer */
    bool doubled; /* the last one's head came twice, as libmicrohttpd 0.9.75 sends those of some of its own
                     refusals */
};

/* How data is sent: all at once, in two parts, or each request only after the answer to the one before. */
struct wire_manner {
    size_t split; /* bytes of the first part; 0: one part */
    bool polite;
};

/* Sends data on a new connection, waits for an answer to each of the stream's whole requests, closes the
 * sending half, and reads to the end. Breaks when the server keeps a whole request waiting or does not close.
 */
void wire_talk(const struct wire_place *to, const char *data, size_t len, const struct wire_manner *how,
               const struct wire_stream *sent, struct wire_answers *ret);
void wire_answers_free(struct wire_answers *a);
/* The value of a field of the head, which may come once; copied. NULL when it is not there. Caller frees. */
char *wire_field(const struct wire_answer *answer, const char *name);
