#include "http/stream.h"

#include "base/clock.h"
#include "base/limits.h"
#include "http/internal.h"

#include <string.h>
#include <sys/socket.h>

/* Of the library's own buffer, used only for clients that take no chunks. */
#define BLOCK 1024

struct http_stream {
    struct http_req *req;
    const struct http_stream_ops *ops;
    void *arg;
    struct http_ticket *ticket; /* counted */
    enum http_flow flow;        /* what next() said last */
    struct buf piece;
    size_t sent; /* of the piece */
};

static ssize_t give(struct http_stream *st, char *out, size_t room)
{
    size_t left = st->piece.len - st->sent, n = left < room ? left : room;

    conn_deadline(st->req->conn, st->req->server->config.reply_ms);
    memcpy(out, st->piece.data + st->sent, n);
    st->sent += n;
    if (st->sent == st->piece.len) { /* a stream that waits keeps no memory */
        buf_free(&st->piece);
        st->sent = 0;
    }
    return (ssize_t)n;
}

/* The library's content reader, on the request's server thread: it must have given bytes or have suspended
 * the connection when it returns, else the library asks again without end. */
static ssize_t read_more(void *cls, uint64_t pos, char *out, size_t room)
{
    struct http_stream *st = cls;
    struct conn *c = st->req->conn;

    (void)pos;
    while (st->piece.len == 0) {
        if (st->flow == HTTP_END)
            return MHD_CONTENT_READER_END_OF_STREAM;
        if (st->flow == HTTP_BREAK)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        if (st->flow == HTTP_WAIT) {
            st->flow = HTTP_MORE;
            st->ticket->deadline = clock_mono_ms() + st->req->server->config.beat_ms;
            if (ticket_suspend(c, st->ticket))
                return 0;
        }
        int why = ticket_take(c, st->ticket, TICKET_ARMED);
        if (why == WHY_GONE)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        if (http_stopping(st->req->server))
            why = HTTP_STOPPING;
        st->flow = st->ops->next(st->arg, (enum http_why)why, &st->piece);
    }
    return give(st, out, room);
}

struct http_ticket *http_stream(struct http_req *req, const char *type, const struct http_stream_ops *ops,
                                void *arg, struct err *err)
{
    struct http_stream *st = calloc(1, sizeof *st);
    struct http_ticket *t = ticket_new(req);
    struct MHD_Response *response =
        st && t ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_more, st, NULL) : NULL;
    int size = LIMIT_HTTP_STREAM_SEND;

    /* A connection that has lived for long and was set up for a stream serves nothing else. */
    if (!response || MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type) == MHD_NO ||
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close") == MHD_NO) {
        if (response)
            MHD_destroy_response(response);
        http_ticket_release(t);
        free(st);
        err_no_memory(err);
        return NULL;
    }
    /* After a head alone the library would still send the last chunk. */
    if (strcmp(req->method, "HEAD") == 0)
        MHD_set_response_options(response, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END);
    t->stream = true;
    t->refs = 2; /* the caller's and the stream's */
    *st = (struct http_stream){
        .req = req, .ops = ops, .arg = arg, .ticket = t, .piece = BUF_INIT(LIMIT_HTTP_STREAM_PIECE)};
    req->stream = st;
    if (req->reply)
        MHD_destroy_response(req->reply);
    req->reply = response;
    req->status = 200;
    /* Refused: then the kernel's own bound holds. */
    (void)setsockopt(req->conn->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    return t;
}

void stream_close(struct http_req *req)
{
    struct http_stream *st = STEAL(req->stream);

    if (!st)
        return;
    ticket_take(req->conn, st->ticket, TICKET_OVER);
    st->ops->free(st->arg);
    http_ticket_release(st->ticket);
    buf_free(&st->piece);
    free(st);
}
