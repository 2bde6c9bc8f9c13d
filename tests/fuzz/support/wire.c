#include "wire.h"

#include "fuzz.h"

#include "base/clock.h"

#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>

#define PATIENCE_MS  8000
#define CURIOSITY_MS 4 /* for what should not come */

/* --- what is sent --------------------------------------------------------------------------------------- */

struct reader {
    const char *at, *end;
};

enum step { STEP_OK, STEP_PARTIAL, STEP_BAD, STEP_LOOSE };

static bool is_token_char(char c)
{
    return isalnum((unsigned char)c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* A line without its CR LF. */
static enum step take_line(struct reader *r, const char **line, size_t *len)
{
    for (const char *p = r->at; p < r->end; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '\r' && p + 1 == r->end)
            return STEP_PARTIAL;
        if (c == '\r' && p[1] == '\n') {
            *line = r->at;
            *len = (size_t)(p - r->at);
            r->at = p + 2;
            return STEP_OK;
        }
        if ((c < 0x20 && c != '\t') || c == 0x7F)
            return STEP_BAD;
    }
    return STEP_PARTIAL;
}

static enum step take_request_line(struct reader *r, struct wire_request *req)
{
    const char *line;
    size_t len, method = 0, target = 0;
    enum step step = take_line(r, &line, &len);

    if (step != STEP_OK)
        return step;
    while (method < len && is_token_char(line[method]))
        method++;
    while (method + 1 + target < len && line[method + 1 + target] != ' ')
        target++;
    const char *version = line + method + 1 + target;
    if (method == 0 || target == 0 || line[method] != ' ' || len != method + target + 10 ||
        (memcmp(version, " HTTP/1.1", 9) != 0 && memcmp(version, " HTTP/1.0", 9) != 0))
        return STEP_BAD;
    snprintf(req->method, sizeof req->method, "%.*s", (int)method, line);
    req->target = line + method + 1;
    req->target_len = target;
    req->modern = version[8] == '1';
    req->close = !req->modern;
    return STEP_OK;
}

/* What the fields say of the body. */
struct framing {
    unsigned hosts, lengths, codings;
    uint64_t length;
    bool bad;
};

static bool field_is(const char *line, size_t name, const char *wanted)
{
    return name == strlen(wanted) && strncasecmp(line, wanted, name) == 0;
}

static void take_field(const char *line, size_t name, const char *value, size_t len, struct wire_request *req,
                       struct framing *f)
{
    if (field_is(line, name, "host")) {
        f->hosts++;
    } else if (field_is(line, name, "content-length")) {
        f->lengths++;
        f->bad = f->bad || len == 0 || len > 18;
        for (size_t i = 0; i < len && !f->bad; i++) {
            f->bad = !isdigit((unsigned char)value[i]);
            f->length = f->length * 10 + (uint64_t)(value[i] - '0');
        }
    } else if (field_is(line, name, "transfer-encoding")) {
        f->codings++;
        f->bad = f->bad || len != 7 || strncasecmp(value, "chunked", 7) != 0;
    } else if (field_is(line, name, "connection")) {
        req->close =
            req->close || memmem(value, len, "close", 5) || len > 0; /* whatever it says may end it */
    } else if (field_is(line, name, "expect")) {
        req->expects = true;
    }
}

static enum step take_fields(struct reader *r, struct wire_request *req, struct framing *f)
{
    for (;;) {
        const char *line;
        size_t len, name = 0;
        enum step step = take_line(r, &line, &len);
        if (step != STEP_OK)
            return step;
        if (len == 0)
            break;
        while (name < len && is_token_char(line[name]))
            name++;
        if (name == 0 || name == len || line[name] != ':')
            return STEP_BAD;
        const char *value = line + name + 1, *end = line + len;
        while (value < end && (*value == ' ' || *value == '\t'))
            value++;
        while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
            end--;
        take_field(line, name, value, (size_t)(end - value), req, f);
    }
    return STEP_OK;
}

static bool framing_sound(const struct framing *f, const struct wire_request *req)
{
    return !f->bad && f->hosts <= 1 && (f->hosts == 1 || !req->modern) && f->lengths <= 1 &&
           f->codings <= 1 && !(f->codings && (f->lengths || !req->modern));
}

static enum step take_chunks(struct reader *r, struct buf *body)
{
    for (;;) {
        const char *line;
        size_t len, digits = 0, size = 0;
        struct err err;
        enum step step = take_line(r, &line, &len);
        if (step != STEP_OK)
            return step;
        for (; digits < len && isxdigit((unsigned char)line[digits]); digits++)
            size =
                size * 16 + (size_t)(isdigit((unsigned char)line[digits]) ? line[digits] - '0'
                                                                          : (line[digits] | 0x20) - 'a' + 10);
        if (digits == 0 || digits > 15 || (digits < len && line[digits] != ';'))
            return STEP_BAD;
        if (size == 0)
            break;
        if ((size_t)(r->end - r->at) < size)
            return STEP_PARTIAL;
        PROPERTY(buf_add(body, r->at, size, &err) == 0, "%s", err.text);
        r->at += size;
        step = take_line(r, &line, &len);
        if (step != STEP_OK || len > 0)
            return step == STEP_PARTIAL ? STEP_PARTIAL : STEP_BAD;
    }
    struct wire_request trailer = {0};
    struct framing ignored = {0};
    return take_fields(r, &trailer, &ignored);
}

static enum step take_request(struct reader *r, struct wire_request *req)
{
    struct framing f = {0};
    struct buf body = BUF_INIT(64 << 20);
    struct err err;

    while (r->end - r->at >= 2 && r->at[0] == '\r' && r->at[1] == '\n')
        r->at += 2;
    if (r->at == r->end)
        return STEP_PARTIAL;
    enum step step = take_request_line(r, req);
    if (step == STEP_OK)
        step = take_fields(r, req, &f);
    /* A client must not expect to be asked for a body that it does not have. (RFC 9110 section 10.1.1) */
    if (step == STEP_OK && (!framing_sound(&f, req) || (req->expects && !f.codings && f.length == 0)))
        step = STEP_BAD;
    if (step != STEP_OK)
        return step;
    if (f.codings) {
        req->close = true; /* where chunks end is a matter of opinion: nothing behind them may be taken for a
                              request */
        step = take_chunks(r, &body);
    } else if ((uint64_t)(r->end - r->at) < f.length) {
        step = STEP_PARTIAL;
    } else {
        PROPERTY(buf_add(&body, r->at, f.length, &err) == 0, "%s", err.text);
        r->at += f.length;
    }
    if (step != STEP_OK) {
        buf_free(&body);
        return f.codings ? STEP_LOOSE : step;
    }
    req->body = body.data;
    req->body_len = body.len;
    return STEP_OK;
}

void wire_read(const char *data, size_t len, struct wire_stream *ret)
{
    struct reader r = {data, data + len};

    *ret = (struct wire_stream){.tail = WIRE_END};
    while (r.at < r.end) {
        struct wire_request req = {0};
        if (ret->count == WIRE_REQUESTS || (ret->count > 0 && ret->list[ret->count - 1].close)) {
            ret->tail = WIRE_MORE;
            return;
        }
        enum step step = take_request(&r, &req);
        if (step != STEP_OK) {
            ret->tail = step == STEP_BAD ? WIRE_BAD : step == STEP_LOOSE ? WIRE_LOOSE : WIRE_PARTIAL;
            ret->rest = req;
            return;
        }
        req.end = (size_t)(r.at - data);
        ret->list[ret->count++] = req;
    }
}

void wire_free(struct wire_stream *s)
{
    for (size_t i = 0; i < s->count; i++)
        free(s->list[i].body);
}

/* --- what comes back ------------------------------------------------------------------------------------ */

char *wire_field(const struct wire_answer *answer, const char *name)
{
    char *found = NULL;
    size_t len = strlen(name);
    const char *end = answer->head + answer->head_len;

    for (const char *p = answer->head; (p = memmem(p, (size_t)(end - p), "\r\n", 2)); p += 2) {
        if ((size_t)(end - p) < len + 3 || strncasecmp(p + 2, name, len) != 0 || p[2 + len] != ':')
            continue;
        const char *value = p + 3 + len;
        value += strspn(value, " ");
        PROPERTY(!found, "%s stands twice", name);
        found = strndup(value, strcspn(value, "\r"));
    }
    return found;
}

/* The next answer in the bytes from `at`; false while it is not whole. At the end of the connection a HEAD
 * may have been answered. */
static bool parse_answer(const struct buf *b, size_t at, bool no_body, bool ended, struct wire_answer *ret)
{
    const char *head = b->data + at, *end = memmem(head, b->len - at, "\r\n\r\n", 4);
    struct wire_answer a = {.head = head};

    if (!end)
        return false;
    a.head_len = (size_t)(end - head);
    PROPERTY(sscanf(head, "HTTP/1.%*1[01] %3d ", &a.status) == 1 && a.status >= 100 && a.status <= 599,
             "no status line: %.*s", (int)a.head_len, head);
    CLEANUP(free_str) char *length = wire_field(&a, "content-length");
    CLEANUP(free_str) char *coding = wire_field(&a, "transfer-encoding");
    CLEANUP(free_str) char *connection = wire_field(&a, "connection");
    PROPERTY(!coding, "an answer in chunks");
    a.close = connection && strcasecmp(connection, "close") == 0;
    a.body = end + 4;
    size_t left = b->len - at - a.head_len - 4;
    if (a.status >= 200 && a.status != 204) {
        PROPERTY(length && *length && length[strspn(length, "0123456789")] == '\0', "no length: %.*s",
                 (int)a.head_len, head);
        a.body_len = strtoul(length, NULL, 10);
    } else {
        PROPERTY(!length || strcmp(length, "0") == 0, "a body where none can be");
    }
    /* A head that is not even looked at may be answered as if it were no HEAD, as the last of its connection.
     */
    if ((no_body && !(a.close && a.status >= 400 && left == a.body_len)) || (ended && left == 0))
        a.body_len = 0;
    if (left < a.body_len)
        return false;
    *ret = a;
    return true;
}

/* Takes the second of two heads out, so that the rest can be read. */
static void drop_doubled_head(struct wire_answers *a, size_t at)
{
    char *head = a->bytes.data + at;
    size_t left = a->bytes.len - at;
    const char *end = left > 0 ? memmem(head, left, "\r\n\r\n", 4) : NULL;
    size_t len = end ? (size_t)(end + 4 - head) : 0;

    if (len == 0 || left < 2 * len || memcmp(head, head + len, len) != 0 || strstr(head, "204") == head + 9)
        return;
    a->doubled = true;
    memmove(head, head + len, left - len + 1);
    a->bytes.len -= len;
}

static void parse_answers(struct wire_answers *a, const struct wire_stream *sent, bool ended)
{
    a->count = 0;
    a->read = 0;
    while (a->read < a->bytes.len) {
        struct wire_answer next = {0};
        const struct wire_request *req = a->count < sent->count ? &sent->list[a->count] : &sent->rest;
        bool no_body = a->count < sent->count && strcmp(req->method, "HEAD") == 0;
        if (ended && (!no_body || a->count + 1 >= sent->count)) /* two of HEAD in a row look the same */
            drop_doubled_head(a, a->read);
        if (!parse_answer(&a->bytes, a->read, no_body, ended && a->count >= sent->count, &next))
            return;
        a->read += next.head_len + 4 + next.body_len;
        if (next.status < 200)
            continue;
        PROPERTY(a->count < WIRE_ANSWERS, "answers without end");
        a->list[a->count++] = next;
    }
}

static bool comes_something(int fd, int patience_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return RETRY(poll(&p, 1, patience_ms)) > 0;
}

/* False at the end of the connection. */
static bool receive(int fd, struct buf *b)
{
    struct err err;

    PROPERTY(comes_something(fd, PATIENCE_MS), "the server neither answers nor closes; so far: %s",
             b->data ? b->data : "nothing");
    PROPERTY(buf_reserve(b, 65536, &err) == 0, "an answer of %zu bytes", b->len);
    ssize_t n = RETRY(recv(fd, b->data + b->len, 65536, 0));
    b->len += n > 0 ? (size_t)n : 0;
    b->data[b->len] = '\0';
    return n > 0;
}

/* The server may have closed before all is sent: what it answered counts. Answers that are not read could
 * block it. */
static bool send_all(int fd, const char *data, size_t len, struct buf *answers)
{
    while (len > 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};
        PROPERTY(RETRY(poll(&p, 1, PATIENCE_MS)) > 0, "the server takes no more, %zu bytes to go", len);
        if ((p.revents & POLLIN) && !receive(fd, answers))
            return false;
        if (!(p.revents & POLLOUT))
            continue;
        ssize_t n = RETRY(send(fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT));
        if (n < 0 && errno != EAGAIN)
            return true;
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

static int dial(const struct wire_place *place)
{
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    struct sockaddr_in remote = {
        .sin_family = AF_INET, .sin_port = htons(place->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(place->path ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, rc;

    PROPERTY(fd >= 0, "no socket: %s", strerror(errno));
    if (place->path) {
        memcpy(local.sun_path, place->path, strlen(place->path) + 1);
        rc = RETRY(connect(fd, (struct sockaddr *)&local, sizeof local));
    } else {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        rc = connect(fd, (struct sockaddr *)&remote, sizeof remote);
    }
    PROPERTY(rc == 0, "the server is not there any more: %s", strerror(errno));
    return fd;
}

/* Reads until `count` answers are there, or no more can come. False at the end of the connection. */
static bool await_answers(int fd, size_t count, const struct wire_stream *sent, struct wire_answers *ret,
                          bool open)
{
    for (;;) {
        parse_answers(ret, sent, !open);
        bool last = ret->count > 0 && ret->list[ret->count - 1].close;
        if (!open || last || ret->count >= count)
            return open;
        open = receive(fd, &ret->bytes);
    }
}

static bool send_politely(int fd, const char *data, size_t len, const struct wire_stream *sent,
                          struct wire_answers *ret)
{
    bool open = true;
    size_t at = 0;

    for (size_t i = 0; i < sent->count && open && ret->count == i; i++) {
        open = send_all(fd, data + at, sent->list[i].end - at, &ret->bytes);
        at = sent->list[i].end;
        open = await_answers(fd, i + 1, sent, ret, open);
    }
    return open && send_all(fd, data + at, len - at, &ret->bytes);
}

static bool send_in_parts(int fd, const char *data, size_t len, size_t split, struct wire_answers *ret)
{
    split = split < len ? split : len;
    if (!send_all(fd, data, split, &ret->bytes))
        return false;
    if (split > 0 && split < len) /* now and then long enough for the server to take up the first part */
        clock_sleep_ms(split % 32 == 0);
    return send_all(fd, data + split, len - split, &ret->bytes);
}

void wire_talk(const struct wire_place *to, const char *data, size_t len, const struct wire_manner *how,
               const struct wire_stream *sent, struct wire_answers *ret)
{
    CLEANUP(close_fd) int fd = dial(to);

    *ret = (struct wire_answers){.bytes = BUF_INIT(64 << 20)};
    bool open =
        how->polite ? send_politely(fd, data, len, sent, ret) : send_in_parts(fd, data, len, how->split, ret);
    open = await_answers(fd, sent->count, sent, ret, open);

    shutdown(fd, SHUT_WR);
    /* Half a request may be kept until its time is up. */
    bool half = sent->tail == WIRE_PARTIAL || sent->tail == WIRE_LOOSE;
    while (open && (!half || comes_something(fd, CURIOSITY_MS)))
        open = receive(fd, &ret->bytes);
    parse_answers(ret, sent, true);
    PROPERTY(ret->read == ret->bytes.len, "%zu bytes that are no answer: %s", ret->bytes.len - ret->read,
             ret->bytes.data + ret->read);
}

void wire_answers_free(struct wire_answers *a)
{
    buf_free(&a->bytes);
}
