/* base/clock.h: deadlines are monotonic, timestamps are wall time; both in milliseconds. */
#pragma once

#include "base/base.h"

#define CLOCK_RFC3339_SIZE 32

int64_t clock_mono_ms(void); /* CLOCK_MONOTONIC */
int64_t clock_mono_us(void);
int64_t clock_wall_ms(void); /* since 1970-01-01T00:00:00Z */
/* "2026-01-31T12:00:00.123Z"; returns out. (RFC 3339) */
const char *clock_rfc3339(int64_t wall_ms, char out[CLOCK_RFC3339_SIZE]);
/* The reverse, with or without a fraction, Z or an offset. 0, or -1 when the text is no such time. */
int clock_parse_rfc3339(const char *text, int64_t *wall_ms);
/* Milliseconds left until a monotonic deadline, 0 when past; for poll(2), at most INT_MAX. */
int clock_left_ms(int64_t deadline_mono_ms);
void clock_sleep_ms(int64_t ms);
