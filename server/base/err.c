#include "base/err.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int status;
    const char *name;
    const char *title;
} table[] = {[ERR_NONE] = {200, "none", ""},
#define X(code, status, name, title) [code] = {status, name, title},
             ERR_TABLE(X)
#undef X
};

/* What a library quotes need not be UTF-8, and a text that was cut may end inside a character: made such that
 * it can stand in JSON and in a log. */
static void make_whole(struct err *err)
{
    size_t len = strlen(err->text), last = len;

    if (utf8_valid(err->text, len))
        return;
    while (last > 0 && ((unsigned char)err->text[--last] & 0xC0) == 0x80)
        ;
    if (len + 1 == sizeof err->text && !utf8_valid(err->text + last, len - last))
        err->text[last] = '\0';
    utf8_replace(err->text);
}

int err_set(struct err *err, enum err_code code, const char *fmt, ...)
{
    va_list ap;

    err->code = code;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    make_whole(err);
    return -1;
}

static enum err_code code_of_errno(int errnum)
{
    switch (errnum) {
    case ENOMEM:
        return ERR_NO_MEMORY;
    case ENOSPC:
    case EDQUOT:
        return ERR_DISK_FULL;
    default:
        return ERR_SYSTEM;
    }
}

int err_errno(struct err *err, int errnum, const char *fmt, ...)
{
    char why[128];
    va_list ap;

    err->code = code_of_errno(errnum);
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    size_t len = strlen(err->text);
    snprintf(err->text + len, sizeof err->text - len, ": %s", strerror_r(errnum, why, sizeof why));
    make_whole(err);
    return -1;
}

int err_no_memory(struct err *err)
{
    return err_set(err, ERR_NO_MEMORY, "out of memory");
}

int err_wrap(struct err *err, const char *fmt, ...)
{
    char joined[sizeof err->text];
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(joined, sizeof joined, fmt, ap);
    va_end(ap);
    if (n < 0)
        return -1;
    size_t len = (size_t)n < sizeof joined ? (size_t)n : sizeof joined - 1;
    snprintf(joined + len, sizeof joined - len, ": %s", err->text);
    memcpy(err->text, joined, sizeof joined);
    make_whole(err);
    return -1;
}

int err_status(enum err_code code)
{
    return table[code].status;
}

const char *err_name(enum err_code code)
{
    return table[code].name;
}

const char *err_title(enum err_code code)
{
    return table[code].title;
}
