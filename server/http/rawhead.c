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

/* As the library counts them: empty ones too. */
static int check_query(const char *target, size_t len, struct err *err)
{
    const char *at = memchr(target, '?', len), *end = target + len;
    unsigned parts = 0;

    while (at && ++parts <= LIMIT_HTTP_QUERY) {
        at++;
        at = memchr(at, '&', (size_t)(end - at));
    }
    return at ? err_set(err, ERR_BAD_REQUEST, "more than %d query parameters", LIMIT_HTTP_QUERY) : 0;
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
    return check_query(target + 1, (size_t)(version - target - 1), err);
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

/* Nothing here reads cookies, but the library takes them apart. */
static int check_cookie(const char *value, size_t len, struct err *err)
{
    unsigned cookies = 1;

    for (size_t i = 0; i < len; i++)
        cookies += value[i] == ';' || value[i] == ',';
    if (len > LIMIT_HTTP_COOKIE || cookies > LIMIT_HTTP_COOKIES)
        return err_set(err, ERR_HEAD_TOO_LARGE, "a Cookie line has more than %d bytes or %d cookies",
                       LIMIT_HTTP_COOKIE, LIMIT_HTTP_COOKIES);
    return 0;
}

static bool is_name(const char *line, size_t len, const char *name)
{
    return len == strlen(name) && strncasecmp(line, name, len) == 0;
}

static int check_field_line(const char *line, size_t len, struct err *err)
{
    const char *colon = memchr(line, ':', len);
    size_t name_len = colon ? (size_t)(colon - line) : 0;

    if (!rawhead_token(line, name_len))
        return err_set(err, ERR_BAD_REQUEST, "a header line is not token: value");
    if (is_name(line, name_len, "content-length"))
        return check_length(colon + 1, len - name_len - 1, err);
    if (is_name(line, name_len, "cookie"))
        return check_cookie(colon + 1, len - name_len - 1, err);
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
    unsigned lines = 0;

    if (check_bytes(head, len, err) < 0)
        return -1;
    while (at + 2 < len) { /* up to the empty line */
        const char *line = head + at, *lf = memchr(line, '\n', len - at);
        size_t line_len = lf ? (size_t)(lf - line) - 1 : len - at;
        if (lines == 0 ? check_request_line(line, line_len, err) < 0
                       : check_field_line(line, line_len, err) < 0)
            return -1;
        if (lines++ > LIMIT_HTTP_FIELDS)
            return err_set(err, ERR_HEAD_TOO_LARGE, "the head has more than %d fields", LIMIT_HTTP_FIELDS);
        at += line_len + 2;
    }
    return lines == 0 ? err_set(err, ERR_BAD_REQUEST, "there is no request line") : 0;
}
