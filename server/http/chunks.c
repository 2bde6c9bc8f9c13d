/* The answer to a body whose chunks are broken.
 *
 * The library notices and answers with a page of its own; nobody is asked. But it writes a line to its log
 * just before, on the thread that serves the connection, without saying which it is. That one is receiving
 * chunks on this thread, and has been read from since its last round ended. Where this fits one connection
 * alone it gets our answer, before the library can send its own; where it fits several, which takes others in
 * the middle of a chunk's head, the page goes out: nothing tells them apart before it is sent, and an answer
 * to the wrong one would end a sound request. (connection.c of 0.9.75, transmit_error_response_len) */
#include "http/internal.h"

#include <string.h>
#include <sys/socket.h>

#define DRAIN_MAX (64 << 10)

/* Whose round it is on this thread, if it receives chunks. */
static __thread struct conn *serving;

void chunks_begin(struct http_req *req)
{
    struct conn *c = req->conn;

    c->chunks_seen = c->taken;
    c->chunks_on = pthread_self();
    c->chunks_of = req;
    chunks_round(c);
}

void chunks_end(struct conn *c)
{
    c->chunks_of = NULL;
    if (serving == c)
        serving = NULL;
}

void chunks_round(struct conn *c)
{
    if (serving && serving != c)
        conn_bytes_read(serving->fd, false, &serving->chunks_seen);
    serving = c->chunks_of ? c : NULL;
}

static bool may_be_broken(const struct conn *c)
{
    uint64_t read;

    return c->chunks_of && pthread_equal(c->chunks_on, pthread_self()) &&
           (!conn_bytes_read(c->fd, true, &read) || read > c->chunks_seen);
}

/* Under the lock. NULL: none, or not known. */
static struct conn *find_broken(struct http_server *s)
{
    struct conn *found = NULL;

    for (struct conn *c = s->conns; c; c = c->next) {
        if (!may_be_broken(c))
            continue;
        if (found)
            return NULL;
        found = c;
    }
    return found;
}

/* What is left unread when the library closes would make the kernel take the answer back. */
static void drain(int fd)
{
    char waste[4096];

    for (size_t n = 0; n < DRAIN_MAX; n += sizeof waste) {
        if (recv(fd, waste, sizeof waste, MSG_DONTWAIT) <= 0)
            return;
    }
}

/* Of what the library would answer. */
static void name_fault(unsigned status, struct err *err)
{
    if (status == MHD_HTTP_CONTENT_TOO_LARGE)
        err_set(err, ERR_TOO_LARGE, "a chunk of the body is larger than all that is taken here");
    else if (status == MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE)
        err_set(err, ERR_HEAD_TOO_LARGE, "the trailer of the body is too large");
    else
        err_set(err, ERR_BAD_REQUEST, "the chunks of the body are broken");
}

void chunks_log(void *cls, const char *fmt, va_list args)
{
    static const char refusal[] = "Error processing request";
    struct http_server *s = cls;
    struct err err;

    if (strncmp(fmt, refusal, strlen(refusal)) != 0)
        return;
    name_fault(va_arg(args, unsigned), &err);
    pthread_mutex_lock(&s->lock);
    struct conn *c = find_broken(s);
    if (c && !c->refused) {
        struct http_req *req = c->chunks_of;
        const struct err *why = req->failure ? req->failure : &err;
        req->status = (unsigned)err_status(why->code);
        drain(c->fd);
        conn_refuse(c, why, req->id);
    }
    pthread_mutex_unlock(&s->lock);
}
