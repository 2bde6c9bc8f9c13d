#include "http/guard.h"

#include "base/limits.h"
#include "http/rawhead.h"

#include <string.h>
#include <strings.h>

/* Headers that may come once: what two of them mean is up to the reader, and that is the attack. */
enum { ONCE_HOST, ONCE_LENGTH, ONCE_ENCODING, ONCE_COUNT };
static const char *const once[] = {
    "host",          "content-length", "transfer-encoding",
    "authorization", "content-type",   "idempotency-key",
    "if-match",      "if-none-match",  "x-request-id",
    "traceparent",   "origin",         "expect",
    "last-event-id",
};

struct walk {
    struct head head;
    const char *method;
    unsigned seen[ARRAY_LEN(once)];
    const char *last_end; /* where the value that ends last in memory ends */
    struct err *err;
    bool failed;
};

static int fail(struct walk *w, const char *why)
{
    w->failed = true;
    return err_set(w->err, ERR_BAD_REQUEST, "%s", why);
}

/* The library overwrites a line's CR and LF with NUL, but a bare LF with one NUL only; a line that goes on
 * behind a NUL byte, or on the next line after a blank, looks different as well. */
static bool ends_with_crlf(const char *end)
{
    return end[0] == '\0' && end[1] == '\0' && end[2] != ' ' && end[2] != '\t';
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
    if (!value || !rawhead_token(name, name_len)) {
        fail(w, "a header's name is not a token");
        return MHD_NO;
    }
    if (value + value_len < w->method || value + value_len - w->method > LIMIT_HTTP_HEAD) {
        w->failed = true;
        err_set(w->err, ERR_HEAD_TOO_LARGE, "the request head is larger than %d bytes", LIMIT_HTTP_HEAD);
        return MHD_NO;
    }
    for (size_t i = 0; i < value_len; i++) {
        unsigned char c = (unsigned char)value[i];
        if ((c < 0x20 && c != '\t') || c == 0x7F) {
            fail(w, "a header contains a control byte");
            return MHD_NO;
        }
    }
    if (!ends_with_crlf(value + value_len)) {
        fail(w, "a header line does not end with CR LF");
        return MHD_NO;
    }
    if (value + value_len > w->last_end)
        w->last_end = value + value_len;
    for (size_t i = 0; i < ARRAY_LEN(once); i++) {
        if (strncasecmp(once[i], name, name_len) != 0 || once[i][name_len] != '\0')
            continue;
        if (w->seen[i]++ > 0)
            fail(w, "a header that may come once comes twice");
        else if (take_value(w, i, value, value_len) == 0 && strcmp(once[i], "expect") == 0)
            w->head.expects_continue = true;
    }
    return w->failed ? MHD_NO : MHD_YES;
}

int guard_head(struct MHD_Connection *mhd, const char *method, const char *version, struct head *ret,
               struct err *err)
{
    const char *line_end = version + strlen(version);
    struct walk w = {.method = method, .last_end = line_end, .err = err};
    bool modern = strcmp(version, "HTTP/1.1") == 0;

    if (!modern && strcmp(version, "HTTP/1.0") != 0)
        return err_set(err, ERR_BAD_REQUEST, "the version must be HTTP/1.0 or HTTP/1.1");
    if (!ends_with_crlf(line_end))
        return err_set(err, ERR_BAD_REQUEST, "the request line does not end with CR LF");
    MHD_get_connection_values_n(mhd, MHD_HEADER_KIND, on_header, &w);
    if (w.failed)
        return -1;
    /* Shows only when something follows in the buffer; when nothing does, nothing can be misread either. */
    if (w.last_end[2] != '\0' || w.last_end[3] != '\0')
        return err_set(err, ERR_BAD_REQUEST, "the empty line after the headers does not end with CR LF");
    if (w.seen[ONCE_HOST] == 0 && modern)
        return err_set(err, ERR_BAD_REQUEST, "there is no Host header");
    if (w.seen[ONCE_ENCODING] && (w.head.has_length || !modern))
        return err_set(err, ERR_BAD_REQUEST, "Transfer-Encoding comes with Content-Length or HTTP/1.0");
    *ret = w.head;
    return 0;
}
