/* unit/docker/fake.h: an engine of one scripted answer, on a socket of its own. */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

struct fake {
    char dir[64], path[96];
    int listener;
    pthread_t thread;
    const char *answer; /* raw bytes; NULL: accepts and never answers */
    unsigned repeat;    /* bytes of 'x' after it */
    char request[8192]; /* the last head and body seen */
    unsigned requests;
    int stop[2]; /* closing [1] ends the thread */
};

/* `answer` is borrowed and must outlive the fake; "" closes the connection without a word. */
void fake_start(struct fake *f, const char *answer, unsigned repeat);
void fake_stop(struct fake *f);
