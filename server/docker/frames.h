/* docker/frames.h: parser of the Engine's stream multiplexing: an 8-byte header (stream, three zeros,
 * big-endian length), then the payload; a line can span frames. Pure, incremental, any split; allocates
 * nothing. */
#pragma once

#include "base/err.h"

#define FRAMES_PAYLOAD_MAX (1024 * 1024) /* the engine sends up to 32 KiB; more than this is no frame */

enum frames_stream { FRAMES_STDOUT = 1, FRAMES_STDERR = 2 };

/* Zero-initialized by the owner. */
struct frames {
    unsigned char head[8];
    unsigned have;             /* bytes of the head seen so far */
    uint32_t left;             /* bytes of the payload still to come */
    enum frames_stream stream; /* of the current payload */
};

struct frames_piece {
    enum frames_stream stream;
    const char *data; /* points into the input; at least 1 byte */
    size_t len;
};

/* Takes bytes from *data, of which *len are left, and advances both. 1: *piece is the next piece of a
 * payload; 0: the input is used up; -1: ERR_ENGINE, not a frame: the stream cannot be read further. */
MUST_USE int frames_next(struct frames *f, const char **data, size_t *len, struct frames_piece *piece,
                         struct err *err);
