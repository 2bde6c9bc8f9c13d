#include "docker/frames.h"

#include <string.h>

static int take_head(struct frames *f, struct err *err)
{
    const unsigned char *h = f->head;

    if ((h[0] != FRAMES_STDOUT && h[0] != FRAMES_STDERR) || h[1] || h[2] || h[3])
        return err_set(err, ERR_ENGINE, "attach: not a frame: %02x %02x %02x %02x", h[0], h[1], h[2], h[3]);
    uint32_t len = (uint32_t)h[4] << 24 | (uint32_t)h[5] << 16 | (uint32_t)h[6] << 8 | h[7];
    if (len > FRAMES_PAYLOAD_MAX)
        return err_set(err, ERR_ENGINE, "attach: a frame of %u bytes", len);
    f->stream = h[0];
    f->left = len;
    f->have = 0;
    return 0;
}

int frames_next(struct frames *f, const char **data, size_t *len, struct frames_piece *piece, struct err *err)
{
    while (*len > 0) {
        if (f->left > 0) {
            size_t n = *len < f->left ? *len : f->left;
            *piece = (struct frames_piece){.stream = f->stream, .data = *data, .len = n};
            f->left -= (uint32_t)n;
            *data += n;
            *len -= n;
            return 1;
        }
        size_t n = sizeof f->head - f->have;
        if (n > *len)
            n = *len;
        memcpy(f->head + f->have, *data, n);
        f->have += (unsigned)n;
        *data += n;
        *len -= n;
        if (f->have == sizeof f->head && take_head(f, err) < 0)
            return -1;
    }
    return 0;
}
