/* The ring of the last bytes, against what a plain string would hold. */
#include "sandbox/ring.h"

#include <criterion/criterion.h>
#include <string.h>

static void expect(size_t size, const size_t *pieces, size_t count)
{
    struct ring ring = {.size = size};
    struct buf all = BUF_INIT(4096), kept = BUF_INIT(size);
    struct err err;
    unsigned char next = 'a';

    for (size_t i = 0; i < count; i++) {
        char piece[64];
        for (size_t n = 0; n < pieces[i]; n++)
            piece[n] = (char)('a' + (next++ - 'a') % 26);
        cr_assert_eq(ring_add(&ring, piece, pieces[i], &err), 0);
        cr_assert_eq(buf_add(&all, piece, pieces[i], &err), 0);
    }
    size_t want = all.len < size ? all.len : size;
    cr_assert_eq(ring_copy(&ring, &kept, &err), 0);
    cr_expect_eq(ring.total, all.len);
    cr_expect_eq(kept.len, want);
    cr_expect(want == 0 || memcmp(kept.data, all.data + all.len - want, want) == 0);
    ring_free(&ring);
    buf_free(&all);
    buf_free(&kept);
}

Test(ring, keeps_the_last_bytes)
{
    for (size_t size = 0; size <= 9; size++)
        for (size_t a = 1; a <= 20; a++)
            for (size_t b = 1; b <= 20; b++)
                expect(size, (size_t[]){a, b, a}, 3);
}
