#include "sandbox/ring.h"

#include <string.h>

int ring_add(struct ring *r, const char *data, size_t len, struct err *err)
{
    if (r->size == 0) {
        r->total += len;
        return 0;
    }
    if (!r->data && !(r->data = malloc(r->size)))
        return err_no_memory(err);
    if (len > r->size) {
        r->total += len - r->size;
        data += len - r->size;
        len = r->size;
    }
    size_t at = (size_t)(r->total % r->size);
    size_t first = len < r->size - at ? len : r->size - at;
    memcpy(r->data + at, data, first);
    memcpy(r->data, data + first, len - first);
    r->total += len;
    return 0;
}

int ring_copy(const struct ring *r, struct buf *out, struct err *err)
{
    if (r->size == 0)
        return 0;
    if (r->total <= r->size)
        return buf_add(out, r->data, (size_t)r->total, err);
    size_t at = (size_t)(r->total % r->size);
    if (buf_add(out, r->data + at, r->size - at, err) < 0)
        return -1;
    return buf_add(out, r->data, at, err);
}

void ring_free(struct ring *r)
{
    free(r->data);
    r->data = NULL;
    r->total = 0;
}
