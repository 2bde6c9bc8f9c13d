/* unit/sandbox/world.h: a sandbox on the real engine, used as the service would: not as root. */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "sandbox/sandbox.h"

#include <sys/eventfd.h>

struct world {
    struct sandbox *sandbox;
    char socket[108];
    char installation[64];
    char dir[64], broker[96], work[96]; /* 0700, owned by the account */
    struct sandbox_config config;
    int abort_fd;
};

/* Becomes the account (when root), makes the folders and a sandbox on cloister-test-MODE:local. */
void world_open(struct world *w, const char *mode);
void world_prepare(struct world *w); /* must succeed */
/* Asserts that no container of this installation is left, and removes the folders. */
void world_close(struct world *w);

/* What one box took, in milliseconds since it was asked for. */
struct times {
    int64_t create, start, end, removed;
};
/* One whole life on the prepared sandbox; the result is the caller's. Prints the times. */
struct times world_run(struct world *w, const char *input, size_t len, int deadline_ms, int grace_ms,
                       struct box_result *ret);
/* Raises the abort after `ms`, from a thread of its own. */
void world_abort_after(struct world *w, int ms);
