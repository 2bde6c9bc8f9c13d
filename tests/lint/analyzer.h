/* tests/lint/analyzer.h: put in front of every file that clang-tidy reads, but for server/base/err.c.
 * The analyzer does not see into err.c. Told that these give -1, it can follow an error to its caller. */
#pragma once

#include "base/err.h"

static inline int always_negative(int ret)
{
    (void)ret;
    return -1;
}

#define err_set(...)       always_negative((err_set)(__VA_ARGS__))
#define err_errno(...)     always_negative((err_errno)(__VA_ARGS__))
#define err_no_memory(err) always_negative((err_no_memory)(err))
#define err_wrap(...)      always_negative((err_wrap)(__VA_ARGS__))
