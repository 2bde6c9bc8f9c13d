#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static int64_t read_us(clockid_t id)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int64_t clock_mono_us(void)
{
    return read_us(CLOCK_MONOTONIC);
}

int64_t clock_mono_ms(void)
{
    return clock_mono_us() / 1000;
}

int64_t clock_wall_ms(void)
{
    return read_us(CLOCK_REALTIME) / 1000;
}

const char *clock_rfc3339(int64_t wall_ms, char out[CLOCK_RFC3339_SIZE])
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm tm;

    gmtime_r(&seconds, &tm);
    size_t n = strftime(out, CLOCK_RFC3339_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + n, CLOCK_RFC3339_SIZE - n, ".%03dZ", (int)(wall_ms % 1000));
    return out;
}

/* "Z" or "+01:30" at the end: minutes east of UTC. */
static int parse_offset(const char *p, int *minutes)
{
    char sign;
    int hours, rest, used = 0;

    *minutes = 0;
    if (strcmp(p, "Z") == 0 || strcmp(p, "z") == 0)
        return 0;
    if (sscanf(p, "%c%2d:%2d%n", &sign, &hours, &rest, &used) != 3 || used != 6 || p[6] != '\0' ||
        hours > 23 || rest > 59 || hours < 0 || rest < 0 || (sign != '+' && sign != '-'))
        return -1;
    *minutes = (hours * 60 + rest) * (sign == '-' ? -1 : 1);
    return 0;
}

int clock_parse_rfc3339(const char *text, int64_t *wall_ms)
{
    struct tm tm = {0};
    int minutes = 0, ms = 0;

    if (strlen(text) > 40 || strspn(text, "0123456789") != 4)
        return -1;
    const char *p = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (!p)
        return -1;
    if (*p == '.') {
        size_t digits = strspn(++p, "0123456789");
        if (digits == 0)
            return -1;
        for (size_t i = 0; i < 3; i++)
            ms = ms * 10 + (i < digits ? p[i] - '0' : 0);
        p += digits;
    }
    if (parse_offset(p, &minutes) < 0)
        return -1;
    *wall_ms = ((int64_t)timegm(&tm) - (int64_t)minutes * 60) * 1000 + ms;
    return 0;
}

int clock_left_ms(int64_t deadline_mono_ms)
{
    int64_t left = deadline_mono_ms - clock_mono_ms();

    return left <= 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

void clock_sleep_ms(int64_t ms)
{
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000};

    while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
        ;
}
