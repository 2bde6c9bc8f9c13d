/* http/internal.h: what the files of this room share: the server, its connections, requests and tickets.
 *
 * Lock order: http_server.lock, then http_ticket.lock, then the library's own. A connection and its request
 * are touched by one server thread; the watch thread touches only what is marked so. */
#pragma once

#include "base/buf.h"
#include "base/limits.h"
#include "http/guard.h"
#include "http/http.h"
#include "http/park.h"
#include "http/request.h"
#include "http/response.h"
#include "http/router.h"
#include "http/stream.h"
#include "http/trace.h"
#include "http/uri.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>

#define HTTP_NEVER INT64_MAX

struct conn {
    struct http_server *server;
    int fd;
    uint32_t serial;          /* tells a connection from an earlier one with the same fd */
    _Atomic int64_t deadline; /* when the watch thread cuts it off; HTTP_NEVER: not at all */
    uint64_t taken; /* bytes of the heads and bodies so far; whoever serves it, the gate or the library */
    _Atomic(struct http_req *) chunks_of; /* whose chunks come just now; set by its server thread */
    _Atomic pthread_t chunks_on;          /* that thread */
    uint64_t chunks_seen;                 /* bytes read from the socket when its last round ended, or fewer */
    bool refused; /* the answer was written straight to the socket; what comes is dropped */
    /* Under server->lock: */
    bool gated;                     /* not the library's yet: the watch thread's alone, refused included */
    struct MHD_Connection *between; /* suspended until the next request's head is there; NULL: it is not */
    bool idle;                      /* between two requests, and nothing of the next has come */
    struct conn *prev, *next;
    struct http_ticket *parked; /* counted */
    bool watched;               /* in the watch thread's epoll set */
    bool may_probe;             /* HTTP/1.1: an interim answer is allowed */
    bool half_closed;           /* seen during a stream: watched for a reset only */
    int64_t probe_at;           /* next probe of a half-closed client, HTTP_NEVER otherwise */
};

struct http_server {
    struct MHD_Daemon *daemon;
    struct http_config config;
    uint16_t port;
    pthread_t watch;
    bool watch_runs;
    int epoll_fd, event_fd;
    int64_t accept_again;      /* out of descriptors: when to try again; watch thread */
    _Atomic int64_t next_scan; /* when the watch thread looks at deadlines next */
    atomic_bool quiesced, watch_ends, rescan;
    atomic_uint connections;  /* open */
    atomic_uint requests;     /* with a whole head and not completed */
    atomic_size_t body_bytes; /* of all requests */
    pthread_mutex_t lock;
    /* Under lock: */
    struct conn *conns; /* list */
    struct conn **by_fd;
    size_t by_fd_size;
    uint32_t serial;
    unsigned waiting, max_waiting; /* of the connections: gated ones */
    bool stopping, cutting;        /* nothing parks any more; brief parks are resumed as well */
    pthread_cond_t idle;           /* no request is under way */
};

struct http_header {
    const char *name;
    char *value;
};

#define HTTP_HEADERS_MAX 12

struct http_req {
    struct http_server *server;
    struct conn *conn;
    struct MHD_Connection *mhd;
    char *raw; /* request target */
    struct uri uri;
    struct head head;
    char method[16]; /* cut: no known one is that long */
    struct http_match match;
    struct http_param query[LIMIT_HTTP_QUERY];
    unsigned query_count;
    char id[REQUEST_ID_SIZE];
    bool named; /* the client chose the id */
    bool quiet;
    char trace[TRACEPARENT_SIZE];
    int64_t began;
    bool begun;
    bool last;           /* the connection ends with this request */
    struct err *failure; /* answered when the body has been read; NULL: none */
    struct buf body;
    uint64_t received; /* bytes of the body, also of those dropped */
    void *principal;
    void (*principal_free)(void *);
    struct http_ticket *ticket; /* counted; between http_park and its end */
    struct http_stream *stream; /* NULL: the answer is none */
    bool settled;               /* the library has noted that it need not read on (intake.c, follow) */
    struct http_header headers[HTTP_HEADERS_MAX];
    unsigned header_count;
    struct MHD_Response *reply;
    unsigned status;
};

/* request.c */
struct http_req *req_new(struct http_server *s, struct conn *c, struct MHD_Connection *mhd, const char *raw);
void req_free(struct http_req *req);
MUST_USE int req_parse_query(struct http_req *req, struct err *err);

/* intake.c: the library's callbacks */
enum MHD_Result intake_request(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                               const char *version, const char *data, size_t *size, void **ptr);
void *intake_target(void *cls, const char *raw, struct MHD_Connection *mhd);
void intake_completed(void *cls, struct MHD_Connection *mhd, void **ptr,
                      enum MHD_RequestTerminationCode code);

/* conn.c */
void conn_notify(void *cls, struct MHD_Connection *mhd, void **ptr, enum MHD_ConnectionNotificationCode code);
/* Under the lock: into and out of the server's list and count. The descriptor stays open. */
struct conn *conn_new(struct http_server *s, int fd);
void conn_free(struct conn *c);
struct conn *conn_of(struct MHD_Connection *mhd);
/* Sets when the watch thread cuts the connection off; 0: never. */
void conn_deadline(struct conn *c, unsigned ms);
/* Has the client closed its sending half, and is all read? When that came together with a request, the
 * library waits for its event in vain. */
bool conn_sends_no_more(int fd);
/* Writes a whole answer to the socket by itself, closes that half and lets the watch thread end the rest
 * soon: for answers the library cannot give at that moment. `id` NULL: one is made. Only while no answer is
 * under way. */
void conn_refuse(struct conn *c, const struct err *err, const char *id);

/* response.c */
/* The problem document as text; caller frees; NULL: out of memory. What 5xx would tell of the inside is left
 * out. */
char *problem_text(const struct err *err, const struct json_faults *faults);
/* Hands the answer to the library. */
enum MHD_Result reply_send(struct http_req *req);

/* gate.c: all under the lock, and all but the last on the watch thread */
void gate_accept(struct http_server *s, int64_t now);
void gate_event(struct conn *c, uint32_t events); /* may free c */
void gate_close(struct conn *c);                  /* gated or between; may free c */
void gate_listen(struct http_server *s, bool on);
/* After a request that was not the last of its connection. On its server thread, from the library's callback.
 */
void gate_take_back(struct conn *c, struct MHD_Connection *mhd);

/* level.c */
/* Has all that was taken from the socket been part of the requests so far? False as well when that cannot be
 * known. Any thread, while nobody reads from the socket. */
bool conn_is_level(int fd, uint64_t taken);

/* A bound of the bytes that were taken from the socket so far, exact while none come. False: not known. On
 * the thread that reads. */
bool conn_bytes_read(int fd, bool upper, uint64_t *ret);

/* chunks.c: all on the connection's server thread */
void chunks_begin(struct http_req *req); /* its head is known, its chunks come now */
void chunks_end(struct conn *c);         /* all have come, or the request ends */
void chunks_round(struct conn *c);       /* a callback for this connection begins */
void chunks_log(void *cls, const char *fmt, va_list args) FORMAT(2, 0);

/* kick.c */
#define KICK_CLIENTS 128 /* with fewer active ones no thread can stall */
#define KICK_MS      50
void kick_threads(struct http_server *s); /* watch thread */

/* watch.c */
/* Serials begin at 1, so that no connection has these as its token. */
#define WATCH_WAKE     0
#define WATCH_LISTENER 1
static inline uint64_t conn_token(const struct conn *c)
{
    return (uint64_t)c->serial << 32 | (uint32_t)c->fd;
}
MUST_USE int watch_open(struct http_server *s, struct err *err);
MUST_USE int watch_start(struct http_server *s, struct err *err); /* after the daemon */
void watch_stop(struct http_server *s);                           /* joins; nobody comes in any more */
void watch_close(struct http_server *s);                          /* after the daemon */
void watch_wake_at(struct http_server *s, int64_t when);
/* Both under server->lock. */
void watch_add(struct conn *c);
void watch_remove(struct conn *c);

/* park.c */
enum ticket_state { TICKET_ARMED, TICKET_WOKEN, TICKET_SUSPENDED, TICKET_RESUMED, TICKET_OVER };
struct http_ticket {
    atomic_uint refs;
    pthread_mutex_t lock;
    enum ticket_state state; /* under lock */
    int why;                 /* enum http_why, or WHY_GONE; under lock */
    struct MHD_Connection *mhd;
    http_then *then;
    http_gone *gone;
    void *arg;
    int64_t deadline; /* changed only while it is not the connection's */
    bool brief;
    bool stream; /* its connection is in the middle of an answer: no interim one may be sent */
};
#define WHY_GONE (-1)
/* Armed, with one reference; NULL: out of memory. */
struct http_ticket *ticket_new(struct http_req *req);
void ticket_wake(struct http_ticket *t, int why);
/* Gives the ticket to the connection and suspends that, unless it is woken already: then false. */
bool ticket_suspend(struct conn *c, struct http_ticket *t);
/* Takes it away again and tells why it was woken. `next`: TICKET_OVER, or TICKET_ARMED for another round. */
int ticket_take(struct conn *c, struct http_ticket *t, enum ticket_state next);
bool http_stopping(struct http_server *s);
/* After the handler returned HTTP_PARK. True: suspended; false: it is woken already, call park_resume. */
bool park_suspend(struct http_req *req);
/* Runs the continuation. False: the client has gone, close. */
bool park_resume(struct http_req *req, enum http_result *ret);
/* The request ends with a ticket that nobody took up. */
void park_abandon(struct http_req *req);

/* stream.c */
/* The request ends: so does its stream, if it has one. */
void stream_close(struct http_req *req);
