#include "http/guard.h"

#include <string.h>
#include <strings.h>

/* Headers that may come once: what two of them mean is up to the reader, and that is the attack. */
enum { ONCE_HOST, ONCE_LENGTH, ONCE_ENCODING, ONCE_COUNT };
static const char *const once[] = {
    "host",     "content-length", "transfer-encoding", "authorization", "content-type", "idempotency-key",
    "if-match", "if-none-match",  "x-request-id",      "origin",        "expect",       "last-event-id",
};

struct walk {
    struct head head;
    unsigned seen[ARRAY_LEN(once)];
    struct err *err;
    bool failed;
};

static int fail(struct walk *w, const char *why)
{
    w->failed = true;
    return err_set(w->err, ERR_BAD_REQUEST, "%s", why);
}

static int take_length(struct walk *w, const char *value, size_t len)
{
    uint64_t n = 0;

    if (len == 0 || len > 18 || strspn(value, "0123456789") != len)
        return fail(w, "Content-Length is not a decimal number");
    for (size_t i = 0; i < len; i++)
        n = n * 10 + (uint64_t)(value[i] - '0');
    w->head.content_length = n;
    w->head.has_length = true;
    return 0;
}

static int take_value(struct walk *w, size_t which, const char *value, size_t len)
{
    if (which == ONCE_LENGTH)
        return take_length(w, value, len);
    if (which == ONCE_ENCODING) {
        if (strcasecmp(value, "chunked") != 0)
            return fail(w, "the only Transfer-Encoding known here is chunked");
        w->head.chunked = true;
    }
    return 0;
}

static enum MHD_Result on_header(void *cls, enum MHD_ValueKind kind, const char *name, size_t name_len,
                                 const char *value, size_t value_len)
{
    struct walk *w = cls;

    (void)kind;
    (void)name_len; /* the gate has seen that there is no NUL, and a colon in each line */
    if (strcasecmp(name, "connection") == 0 && strcasecmp(value, "keep-alive") != 0)
        w->head.closes = true;
    w->head.traces += strcasecmp(name, "traceparent") == 0;
    for (size_t i = 0; i < ARRAY_LEN(once); i++) {
        if (strcasecmp(once[i], name) != 0)
            continue;
        if (w->seen[i]++ > 0)
            fail(w, "a header that may come once comes twice");
        else if (take_value(w, i, value, value_len) == 0 && strcmp(once[i], "expect") == 0)
            w->head.expects_continue = true;
    }
    return w->failed ? MHD_NO : MHD_YES;
}

int guard_head(struct MHD_Connection *mhd, const char *version, struct head *ret, struct err *err)
{
    bool modern = strcmp(version, "HTTP/1.1") == 0;
    struct walk w = {.err = err, .head.closes = !modern};

    MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, on_header, &w);
    if (w.failed)
        return -1;
    if (w.seen[ONCE_HOST] == 0 && modern)
        return err_set(err, ERR_BAD_REQUEST, "there is no Host header");
    if (w.seen[ONCE_ENCODING] && (w.head.has_length || !modern))
        return err_set(err, ERR_BAD_REQUEST, "Transfer-Encoding comes with Content-Length or HTTP/1.0");
    /* The library would leave it without an answer when more bytes follow. (RFC 9110 section 10.1.1) */
    if (w.head.expects_continue && !w.head.chunked && w.head.content_length == 0)
        return err_set(err, ERR_BAD_REQUEST, "Expect comes without a body");
    *ret = w.head;
    return 0;
}
