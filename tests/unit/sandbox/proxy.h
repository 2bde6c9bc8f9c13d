/* unit/sandbox/proxy.h: stands between the sandbox and the real engine, so that a test can take the engine
 * away. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

enum proxy_mode {
    PROXY_PASS, /* every byte goes through */
    PROXY_MUTE, /* requests go through, answers do not: the outcome is unknown */
    PROXY_DEAD, /* open connections are closed, new ones refused */
};

struct proxy {
    char path[108], engine[108];
    _Atomic int mode;
    int listener, stop[2];
    pthread_t thread;
};

void proxy_start(struct proxy *p, const char *path, const char *engine);
/* Takes effect within some milliseconds; PROXY_DEAD and back is a restart. */
void proxy_set(struct proxy *p, enum proxy_mode mode);
void proxy_stop(struct proxy *p);
