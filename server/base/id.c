#include "base/id.h"

#include "base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>

void id_hex(char *out, size_t bytes)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char raw[64];

    if (bytes > sizeof raw)
        abort();
    for (size_t got = 0; got < bytes;) {
        ssize_t n = getrandom(raw + got, bytes - got, 0);
        if (n < 0 && errno != EINTR)
            abort();
        if (n > 0)
            got += (size_t)n;
    }
    for (size_t i = 0; i < bytes; i++) {
        out[2 * i] = digits[raw[i] >> 4];
        out[2 * i + 1] = digits[raw[i] & 15];
    }
    out[2 * bytes] = '\0';
}

void id_new(const char *prefix, char *out, size_t size)
{
    char hex[ID_HEX_128];

    id_hex(hex, 16);
    snprintf(out, size, "%s%s", prefix, hex);
}

void id_new_in_time(const char *prefix, char *out, size_t size)
{
    char hex[ID_HEX_128];
    uint64_t ms = (uint64_t)clock_wall_ms() & 0xFFFFFFFFFFFF;

    id_hex(hex, 10);
    snprintf(out, size, "%s%012" PRIx64 "%s", prefix, ms, hex);
}
