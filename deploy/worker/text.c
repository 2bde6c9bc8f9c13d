#include "text.h"

#include "base/utf8.h"

#include <string.h>

/* As jansson writes it: short escapes for seven characters, \u00XX for the other controls, the rest as is. */
static size_t encoded_byte(char c)
{
    if (c == '"' || c == '\\' || c == '\b' || c == '\f' || c == '\n' || c == '\r' || c == '\t')
        return 2;
    return (unsigned char)c < 0x20 ? 6 : 1;
}

size_t text_encoded(const char *s, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++)
        n += encoded_byte(s[i]);
    return n;
}

static int marked(const char *s, size_t keep, char **ret, struct err *err)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT(keep + sizeof TEXT_CUT_MARK);

    if (buf_add(&b, s, keep, err) < 0 || buf_adds(&b, TEXT_CUT_MARK, err) < 0)
        return -1;
    *ret = buf_steal(&b);
    return 0;
}

static int whole(const char *s, char **ret, struct err *err)
{
    char *copy = strdup(s);

    if (!copy)
        return err_no_memory(err);
    *ret = copy;
    return 0;
}

int text_cut(const char *s, size_t max, char **ret, struct err *err)
{
    size_t len = strlen(s), room = max - strlen(TEXT_CUT_MARK), keep = 0, used = 0;

    if (text_encoded(s, len) <= max)
        return whole(s, ret, err);
    while (used + encoded_byte(s[keep]) <= room)
        used += encoded_byte(s[keep++]);
    return marked(s, utf8_cut_bytes(s, len, keep), ret, err);
}

int text_cut_chars(const char *s, size_t max, char **ret, struct err *err)
{
    size_t len = strlen(s);

    if (utf8_chars(s, len) <= max)
        return whole(s, ret, err);
    return marked(s, utf8_cut_chars(s, len, max - strlen(TEXT_CUT_MARK)), ret, err);
}
