/* base/buf.h: a byte buffer that knows its maximum.
 * Always NUL-terminated once something was added; the NUL does not count. Not thread-safe. */
#pragma once

#include "base/err.h"

struct buf {
    char *data; /* NULL until the first byte */
    size_t len; /* bytes in use */
    size_t cap;
    size_t max; /* most bytes it may hold */
};

#define BUF_INIT(most) ((struct buf){.max = (most)})

/* 0, or -1 with ERR_TOO_LARGE (nothing added) or ERR_NO_MEMORY. */
MUST_USE int buf_add(struct buf *b, const void *data, size_t len, struct err *err);
MUST_USE int buf_adds(struct buf *b, const char *text, struct err *err);
MUST_USE int buf_addf(struct buf *b, struct err *err, const char *fmt, ...) FORMAT(3, 4);
/* Room for `len` more bytes to be written at data + len by the caller, who then adds to b->len. */
MUST_USE int buf_reserve(struct buf *b, size_t len, struct err *err);
void buf_drop(struct buf *b, size_t len); /* removes the first `len` bytes */
char *buf_steal(struct buf *b);           /* the NUL-terminated data; caller frees; NULL when empty */
void buf_free(struct buf *b);             /* back to empty, max kept; usable as CLEANUP(buf_free) */
