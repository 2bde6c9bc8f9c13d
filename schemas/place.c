#include "schemas/place.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

/* False when it did not fit: out then holds the nearest ancestor that does. */
static bool write_pointer(const struct place *at, struct buf *out)
{
    struct err err;
    char digits[24];

    if (!at->up)
        return buf_adds(out, at->key, &err) == 0;
    if (!write_pointer(at->up, out))
        return false;
    size_t len = out->len;
    snprintf(digits, sizeof digits, "%zu", at->index);
    if (json_pointer_add(out, at->key ? at->key : digits, &err) == 0)
        return true;
    out->len = len;
    if (out->data)
        out->data[len] = '\0';
    return false;
}

int place_fault(struct json_faults *faults, const struct place *at, const char *fmt, ...)
{
    CLEANUP(buf_free) struct buf pointer = BUF_INIT(1024);
    char detail[512];
    va_list ap;

    if (faults->total < JSON_FAULTS_MAX)
        write_pointer(at, &pointer);
    va_start(ap, fmt);
    vsnprintf(detail, sizeof detail, fmt, ap);
    va_end(ap);
    json_fault(faults, pointer.data ? pointer.data : "", "%s", detail);
    return -1;
}
