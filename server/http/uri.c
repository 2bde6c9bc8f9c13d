#include "http/uri.h"

#include "base/limits.h"
#include "base/utf8.h"

#include <string.h>
#include <strings.h>

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* The path of "http://host/path" begins at its third slash. */
static const char *skip_authority(const char *raw)
{
    const char *p = raw;

    if (strncasecmp(raw, "http://", 7) == 0)
        p = raw + 7;
    else if (strncasecmp(raw, "https://", 8) == 0)
        p = raw + 8;
    else
        return raw;
    return p + strcspn(p, "/?");
}

int uri_split(const char *raw, struct uri *ret, struct err *err)
{
    size_t len = strlen(raw);

    if (len > LIMIT_HTTP_TARGET)
        return err_set(err, ERR_URI_TOO_LONG, "the request target is longer than %d bytes",
                       LIMIT_HTTP_TARGET);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)raw[i];
        if (c <= 0x20 || c >= 0x7F || strchr("#\"<>\\^`{|}", c))
            return err_set(err, ERR_BAD_REQUEST, "byte 0x%02X of the request target must be percent-encoded",
                           c);
    }
    const char *path = skip_authority(raw);
    if (*path != '/')
        return err_set(err, ERR_BAD_REQUEST, "the request target does not begin with a slash");
    const char *question = strchr(path, '?');
    *ret = (struct uri){.path = path, .path_len = question ? (size_t)(question - path) : strlen(path)};
    if (question) {
        ret->query = question + 1;
        ret->query_len = strlen(question + 1);
    }
    return 0;
}

int uri_decode(const char *s, size_t len, bool plus, char **ret, struct err *err)
{
    CLEANUP(free_str) char *out = malloc(len + 1);
    size_t o = 0;

    if (!out)
        return err_no_memory(err);
    for (size_t i = 0; i < len; i++) {
        if (s[i] == '%') {
            bool whole = len - i > 2;
            int high = whole ? hex_value(s[i + 1]) : -1, low = whole ? hex_value(s[i + 2]) : -1;
            if (high < 0 || low < 0)
                return err_set(err, ERR_BAD_REQUEST,
                               "a %% in the request target is not followed by two hex digits");
            if (high == 0 && low == 0)
                return err_set(err, ERR_BAD_REQUEST, "the request target contains %%00");
            out[o++] = (char)(high * 16 + low);
            i += 2;
        } else {
            out[o++] = plus && s[i] == '+' ? ' ' : s[i];
        }
    }
    out[o] = '\0';
    if (!utf8_valid(out, o))
        return err_set(err, ERR_BAD_REQUEST, "the request target is not UTF-8 when decoded");
    *ret = STEAL(out);
    return 0;
}
