#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int buf_reserve(struct buf *b, size_t len, struct err *err)
{
    if (len > b->max || b->len > b->max - len)
        return err_set(err, ERR_TOO_LARGE, "more than %zu bytes", b->max);
    size_t need = b->len + len + 1;
    if (need <= b->cap)
        return 0;
    size_t cap = b->cap ? b->cap : 256;
    while (cap < need)
        cap *= 2;
    if (cap > b->max + 1)
        cap = b->max + 1;
    char *data = realloc(b->data, cap);
    if (!data)
        return err_no_memory(err);
    b->data = data;
    b->cap = cap;
    b->data[b->len] = '\0';
    return 0;
}

int buf_add(struct buf *b, const void *data, size_t len, struct err *err)
{
    if (buf_reserve(b, len, err) < 0)
        return -1;
    if (len > 0)
        memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = '\0';
    return 0;
}

int buf_adds(struct buf *b, const char *text, struct err *err)
{
    return buf_add(b, text, strlen(text), err);
}

int buf_addf(struct buf *b, struct err *err, const char *fmt, ...)
{
    va_list ap, again;

    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    int rc = n < 0 ? err_set(err, ERR_INTERNAL, "bad format") : buf_reserve(b, (size_t)n, err);
    if (rc == 0) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
    return rc;
}

void buf_drop(struct buf *b, size_t len)
{
    if (len == 0)
        return;
    memmove(b->data, b->data + len, b->len - len);
    b->len -= len;
    b->data[b->len] = '\0';
}

char *buf_steal(struct buf *b)
{
    char *data = b->data;

    *b = BUF_INIT(b->max);
    return data;
}

void buf_free(struct buf *b)
{
    free(b->data);
    *b = BUF_INIT(b->max);
}
