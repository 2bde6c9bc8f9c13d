#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

static bool continues(char c)
{
    return ((unsigned char)c & 0xC0) == 0x80;
}

size_t utf8_chars(const char *s, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++)
        n += !continues(s[i]);
    return n;
}

size_t utf8_cut_bytes(const char *s, size_t len, size_t n)
{
    if (n >= len)
        return len;
    while (n > 0 && continues(s[n]))
        n--;
    return n;
}

size_t utf8_cut_chars(const char *s, size_t len, size_t n)
{
    size_t i = 0;

    while (i < len) {
        if (n-- == 0)
            return i;
        i++;
        while (i < len && continues(s[i]))
            i++;
    }
    return len;
}

/* Length of the valid sequence at s, or 0. (RFC 3629 section 4) */
static size_t sequence(const unsigned char *s, size_t len)
{
    if (s[0] < 0x80)
        return 1;
    size_t n = s[0] >= 0xC2 && s[0] <= 0xDF   ? 2
               : s[0] >= 0xE0 && s[0] <= 0xEF ? 3
               : s[0] >= 0xF0 && s[0] <= 0xF4 ? 4
                                              : 0;
    if (n == 0 || n > len)
        return 0;
    unsigned char low = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80;
    unsigned char high = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
    if (s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    return n;
}

bool utf8_valid(const char *s, size_t len)
{
    for (size_t i = 0; i < len;) {
        size_t n = sequence((const unsigned char *)s + i, len - i);
        if (n == 0)
            return false;
        i += n;
    }
    return true;
}

static bool control_at(const char *s, size_t left)
{
    unsigned char c = (unsigned char)s[0];

    if (c < 0x20 || c == 0x7F)
        return true;
    return c == 0xC2 && left > 1 && (unsigned char)s[1] >= 0x80 && (unsigned char)s[1] <= 0x9F;
}

bool utf8_has_control(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (control_at(s + i, len - i))
            return true;
    return false;
}

char *utf8_escape_control(const char *s, size_t len)
{
    char *out = malloc(len * 4 + 1);
    size_t o = 0;

    if (!out)
        return NULL;
    for (size_t i = 0; i < len; i++) {
        if (!control_at(s + i, len - i)) {
            out[o++] = s[i];
            continue;
        }
        if ((unsigned char)s[i] == 0xC2)
            i++;
        o += (size_t)snprintf(out + o, 5, "\\x%02x", (unsigned char)s[i]);
    }
    out[o] = '\0';
    return out;
}

char *utf8_sanitize(const char *s, size_t len)
{
    char *out = malloc(len * 3 + 1);
    size_t o = 0;

    if (!out)
        return NULL;
    for (size_t i = 0; i < len;) {
        size_t n = sequence((const unsigned char *)s + i, len - i);
        if (n == 0 || s[i] == '\0') {
            memcpy(out + o, "\xEF\xBF\xBD", 3);
            o += 3;
            i++;
            continue;
        }
        memcpy(out + o, s + i, n);
        o += n;
        i += n;
    }
    out[o] = '\0';
    return out;
}

void utf8_replace(char *s)
{
    for (size_t len = strlen(s); len > 0;) {
        size_t n = sequence((const unsigned char *)s, len);
        if (n == 0)
            *s = '?';
        n += n == 0;
        s += n;
        len -= n;
    }
}

size_t utf8_ragged(const char *s, size_t len)
{
    for (size_t i = 1; i <= 3 && i <= len; i++) {
        unsigned char c = (unsigned char)s[len - i];
        if ((c & 0xC0) == 0x80)
            continue;
        size_t size = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
        return size > i ? i : 0;
    }
    return 0;
}
