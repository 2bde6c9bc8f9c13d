/* base/base.h: the few words of the language that every file uses. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define MUST_USE         __attribute__((warn_unused_result))
#define FORMAT(fmt, arg) __attribute__((format(printf, fmt, arg)))
#define ARRAY_LEN(a)     (sizeof(a) / sizeof((a)[0]))

/* CLEANUP(f) T v = ...: calls f(&v) when v leaves its scope. DEFINE_CLEANUP(T, free_fn) makes the f, named
 * free_fn##_p, from a function that takes a T and accepts NULL. */
#define CLEANUP(f) __attribute__((cleanup(f)))
#define DEFINE_CLEANUP(T, free_fn)                                                                           \
    static inline void free_fn##_p(T *p)                                                                     \
    {                                                                                                        \
        free_fn(*p);                                                                                         \
    }

/* Hands a pointer over and leaves NULL behind, so that its cleanup does nothing. */
#define STEAL(p)                                                                                             \
    __extension__({                                                                                          \
        __typeof__(p) stolen_ = (p);                                                                         \
        (p) = NULL;                                                                                          \
        stolen_;                                                                                             \
    })

/* CLEANUP(free_str) char *s; CLEANUP(close_fd) int fd = -1. */
static inline void free_str(char **s)
{
    free(*s);
}

static inline void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

static inline int steal_fd(int *fd)
{
    int v = *fd;
    *fd = -1;
    return v;
}
