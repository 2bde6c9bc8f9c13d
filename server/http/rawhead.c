#include "http/rawhead.h"

#include "base/limits.h"

#include <string.h>
#include <strings.h>

static size_t skip_empty_lines(const char *data, size_t len)
{
    size_t at = 0;

    while (at < len && (data[at] == '\r' || data[at] == '\n'))
        at++;
    return at;
}

size_t rawhead_length(const char *data, size_t len)
{
    size_t at = skip_empty_lines(data, len);

    while (at < len) {
        const char *lf = memchr(data + at, '\n', len - at);
        if (!lf)
            return 0;
        at = (size_t)(lf - data) + 1;
        if (at < len && data[at] == '\n')
            return at + 1;
        if (at + 1 < len && data[at] == '\r' && data[at + 1] == '\n')
            return at + 2;
    }
    return 0;
}

bool rawhead_token(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c <= 0x20 || c >= 0x7F || strchr("()<>@,;:\\\"/[]?={}", c))
            return false;
    }
    return len > 0;
}

static int check_request_line(const char *line, size_t len, struct err *err)
{
    const char *target = memchr(line, ' ', len), *end = line + len;
    const char *version = target ? memchr(target + 1, ' ', (size_t)(end - target - 1)) : NULL;

    if (!version || !rawhead_token(line, (size_t)(target - line)) || version == target + 1)
        return err_set(err, ERR_BAD_REQUEST, "the request line is not METHOD target HTTP/1.1");
    size_t version_len = (size_t)(end - version - 1);
    if (version_len != 8 ||
        (memcmp(version + 1, "HTTP/1.1", 8) != 0 && memcmp(version + 1, "HTTP/1.0", 8) != 0))
        return err_set(err, ERR_BAD_REQUEST, "the version must be HTTP/1.0 or HTTP/1.1");
    if (version - target - 1 > LIMIT_HTTP_TARGET)
        return err_set(err, ERR_URI_TOO_LONG, "the request target is longer than %d bytes",
                       LIMIT_HTTP_TARGET);
    return 0;
}

static int check_length(const char *value, size_t len, struct err *err)
{
    while (len > 0 && (*value == ' ' || *value == '\t')) {
        value++;
        len--;
    }
    if (len == 0 || len > 18)
        return err_set(err, ERR_BAD_REQUEST, "Content-Length is not a decimal number");
    for (size_t i = 0; i < len; i++) {
        if (value[i] < '0' || value[i] > '9')
            return err_set(err, ERR_BAD_REQUEST, "Content-Length is not a decimal number");
    }
    return 0;
}

static int check_field_line(const char *line, size_t len, struct err *err)
{
    static const char length[] = "content-length";
    const char *colon = memchr(line, ':', len);

    if (!colon || !rawhead_token(line, (size_t)(colon - line)))
        return err_set(err, ERR_BAD_REQUEST, "a header line is not token: value");
    if ((size_t)(colon - line) == sizeof length - 1 && strncasecmp(line, length, sizeof length - 1) == 0)
        return check_length(colon + 1, len - (size_t)(colon + 1 - line), err);
    return 0;
}

static int check_bytes(const char *head, size_t len, struct err *err)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)head[i];
        bool line_end =
            (c == '\r' && i + 1 < len && head[i + 1] == '\n') || (c == '\n' && i > 0 && head[i - 1] == '\r');
        if ((c < 0x20 && c != '\t' && !line_end) || c == 0x7F)
            return err_set(err, ERR_BAD_REQUEST, "the head contains byte 0x%02X where none may be", c);
    }
    return 0;
}

int rawhead_check(const char *head, size_t len, struct err *err)
{
    size_t at = skip_empty_lines(head, len);
    bool first = true;

    if (check_bytes(head, len, err) < 0)
        return -1;
    while (at + 2 < len) { /* up to the empty line */
        const char *line = head + at, *lf = memchr(line, '\n', len - at);
        size_t line_len = lf ? (size_t)(lf - line) - 1 : len - at;
        if (first ? check_request_line(line, line_len, err) < 0 : check_field_line(line, line_len, err) < 0)
            return -1;
        first = false;
        at += line_len + 2;
    }
    return first ? err_set(err, ERR_BAD_REQUEST, "there is no request line") : 0;
}
