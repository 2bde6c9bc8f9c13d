/* The Engine's frames: however the stream is split, the same pieces come out of it, and they are those of a
 * plain reading of the whole. */
#include "support/fuzz.h"

#include "docker/frames.h"

#include <string.h>

/* What a stream says: bytes of each kind in order, and whether it broke off as no stream of frames. */
struct sayings {
    uint8_t *kinds;
    char *bytes;
    size_t count;
    bool refused;
};

static struct sayings sayings_new(size_t most)
{
    struct sayings s = {.kinds = malloc(most + 1), .bytes = malloc(most + 1)};

    PROPERTY(s.kinds && s.bytes, "out of memory");
    return s;
}

static void sayings_free(struct sayings *s)
{
    free(s->kinds);
    free(s->bytes);
}

static void say(struct sayings *s, int kind, const char *data, size_t len)
{
    memset(s->kinds + s->count, kind, len);
    memcpy(s->bytes + s->count, data, len);
    s->count += len;
}

/* The reference: docker.md 4, read off the whole. */
static void read_plainly(const uint8_t *data, size_t size, struct sayings *ret)
{
    size_t at = 0;

    while (size - at >= 8) {
        const uint8_t *h = data + at;
        size_t len = (size_t)h[4] << 24 | (size_t)h[5] << 16 | (size_t)h[6] << 8 | h[7];
        if ((h[0] != 1 && h[0] != 2) || h[1] || h[2] || h[3] || len > FRAMES_PAYLOAD_MAX) {
            ret->refused = true;
            return;
        }
        at += 8;
        size_t have = size - at < len ? size - at : len;
        say(ret, h[0], (const char *)data + at, have);
        at += have;
    }
}

static void read_in_parts(const uint8_t *data, size_t size, const uint8_t *splits, size_t count,
                          struct sayings *ret)
{
    struct frames frames = {0};
    struct err err = {0};
    size_t at = 0, turn = 0;

    while (at < size && !ret->refused) {
        size_t want = count > 0 ? splits[turn++ % count] + 1u : size;
        CLEANUP(free_str)
        char *part =
            fuzz_text(data + at, want < size - at ? want : size - at); /* so that its end is guarded */
        size_t len = want < size - at ? want : size - at;
        const char *p = part;
        struct frames_piece piece;
        int rc;
        at += len;
        while ((rc = frames_next(&frames, &p, &len, &piece, &err)) == 1) {
            PROPERTY(piece.len > 0 && piece.data >= part && piece.data + piece.len <= p,
                     "a piece outside its input");
            say(ret, (int)piece.stream, piece.data, piece.len);
        }
        PROPERTY(rc < 0 || len == 0, "%zu bytes are left over", len);
        ret->refused = rc < 0;
    }
    if (ret->refused) {
        fuzz_check_err(&err);
        PROPERTY(err.code == ERR_ENGINE, "%s", err_name(err.code));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    size_t count = fuzz_byte(&in) % 8;

    count = count < in.size ? count : in.size;
    CLEANUP(sayings_free) struct sayings plain = sayings_new(in.size);
    CLEANUP(sayings_free) struct sayings parts = sayings_new(in.size);
    read_plainly(in.data + count, in.size - count, &plain);
    read_in_parts(in.data + count, in.size - count, in.data, count, &parts);
    PROPERTY(plain.count == parts.count && memcmp(plain.bytes, parts.bytes, plain.count) == 0 &&
                 memcmp(plain.kinds, parts.kinds, plain.count) == 0,
             "the split changes what is read: %zu and %zu bytes", plain.count, parts.count);
    PROPERTY(plain.refused == parts.refused, "the split changes what is refused");
    return 0;
}
