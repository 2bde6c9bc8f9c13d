/* check.h: what the programs of this folder share. They run under ThreadSanitizer, where Criterion does not.
 */
#pragma once

#include "base/base.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                  \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

/* Starts `count` threads of one kind. */
static inline void start_threads(pthread_t *threads, unsigned count, void *(*run)(void *), void *arg)
{
    for (unsigned i = 0; i < count; i++)
        CHECK(pthread_create(&threads[i], NULL, run, arg) == 0);
}

static inline void join_threads(pthread_t *threads, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}
