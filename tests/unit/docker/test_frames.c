/* The frame parser: every split, every header that is none. */
#include "base/buf.h"
#include "docker/frames.h"

#include <criterion/criterion.h>
#include <string.h>

static void add_frame(struct buf *b, unsigned stream, const char *data, size_t len)
{
    struct err err;
    const unsigned char head[8] = {stream, 0, 0, 0, len >> 24, len >> 16 & 255, len >> 8 & 255, len & 255};

    cr_assert_eq(buf_add(b, head, 8, &err), 0);
    cr_assert_eq(buf_add(b, data, len, &err), 0);
}

/* Feeds `text` in pieces of at most `step` bytes; 0, or what the parser said last. */
static int feed(const char *text, size_t len, size_t step, struct buf out[3])
{
    struct frames f = {0};
    struct frames_piece piece;
    struct err err;

    for (size_t at = 0; at < len; at += step) {
        const char *data = text + at;
        size_t left = len - at < step ? len - at : step;
        int rc;
        while ((rc = frames_next(&f, &data, &left, &piece, &err)) > 0) {
            cr_assert_gt(piece.len, 0);
            cr_assert_eq(buf_add(&out[piece.stream], piece.data, piece.len, &err), 0);
        }
        if (rc < 0)
            return rc;
        cr_assert_eq(left, 0);
    }
    return 0;
}

Test(frames, every_split_gives_the_same)
{
    struct buf in = BUF_INIT(65536);

    add_frame(&in, 1, "{\"ok\":", 6);
    add_frame(&in, 2, "a warning\n", 10);
    add_frame(&in, 1, "", 0);
    add_frame(&in, 1, "true}\n", 6);
    add_frame(&in, 2, "", 0);
    for (size_t step = 1; step <= in.len; step++) {
        struct buf out[3] = {BUF_INIT(1024), BUF_INIT(1024), BUF_INIT(1024)};
        cr_assert_eq(feed(in.data, in.len, step, out), 0);
        cr_expect_str_eq(out[1].data, "{\"ok\":true}\n", "split every %zu", step);
        cr_expect_str_eq(out[2].data, "a warning\n", "split every %zu", step);
        buf_free(&out[1]);
        buf_free(&out[2]);
    }
    buf_free(&in);
}

Test(frames, large_payloads)
{
    struct buf in = BUF_INIT(4 << 20), out[3] = {BUF_INIT(0), BUF_INIT(4 << 20), BUF_INIT(0)};
    char *data = calloc(1, FRAMES_PAYLOAD_MAX);

    add_frame(&in, 1, data, FRAMES_PAYLOAD_MAX);
    cr_assert_eq(feed(in.data, in.len, 4093, out), 0);
    cr_expect_eq(out[1].len, FRAMES_PAYLOAD_MAX);
    free(data);
    buf_free(&in);
    buf_free(&out[1]);
}

Test(frames, what_is_no_header_is_an_error)
{
    static const unsigned char bad[][8] = {
        {0, 0, 0, 0, 0, 0, 0, 1},       {3, 0, 0, 0, 0, 0, 0, 1},  {255, 0, 0, 0, 0, 0, 0, 1},
        {1, 1, 0, 0, 0, 0, 0, 1},       {1, 0, 1, 0, 0, 0, 0, 1},  {1, 0, 0, 1, 0, 0, 0, 1},
        {1, 0, 0, 0, 255, 255, 255, 1}, {1, 0, 0, 0, 0, 16, 0, 1}, {'H', 'T', 'T', 'P', '/', '1', '.', '1'},
    };
    struct buf out[3] = {BUF_INIT(16), BUF_INIT(16), BUF_INIT(16)};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        for (size_t step = 1; step <= 8; step++)
            cr_expect_eq(feed((const char *)bad[i], 8, step, out), -1, "header %zu", i);
}
