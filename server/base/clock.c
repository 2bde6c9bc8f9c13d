#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
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
