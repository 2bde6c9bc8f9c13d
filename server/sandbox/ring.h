/* sandbox/ring.h: the last bytes of a stream, and how many there were. Not thread-safe. */
#pragma once

#include "base/buf.h"

struct ring {
    char *data; /* NULL until the first byte */
    size_t size;
    uint64_t total; /* bytes ever added; the newest is at (total - 1) % size */
};

/* ERR_NO_MEMORY on the first call; later ones cannot fail. `size` is set by the owner; 0 keeps nothing and
 * counts. */
MUST_USE int ring_add(struct ring *ring, const char *data, size_t len, struct err *err);
/* What is kept, oldest first, into an empty buffer of at least that maximum. */
MUST_USE int ring_copy(const struct ring *ring, struct buf *out, struct err *err);
void ring_free(struct ring *ring);
