#include "notices.h"

#include "base/proc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A guest has the service's uid, and so a share in its epoll watches; each costs this much of the guest's own
 * memory (eventpoll.c of the kernel, EP_ITEM_COST). The service needs some hundred. */
#define WATCH_BYTES 184
#define WATCHES_OWN 16384

static const char *about_model(const struct config *config)
{
    if (strcmp(config->model.url, "embedded:echo") == 0)
        return "model.url is embedded:echo: answers repeat the message, no model is asked";
    if (strcmp(config->model.url, "embedded:script") == 0)
        return "model.url is embedded:script: callers steer the answers; for trials and tests only";
    return NULL;
}

void notices_each(const struct config *config, void (*say)(const char *sentence))
{
    uint64_t memory = (uint64_t)config->limits.memory_mb << 20;
    uint64_t need = config->pool_size * (memory / WATCH_BYTES) + WATCHES_OWN, have = proc_epoll_watches();
    char text[160];

    if (about_model(config))
        say(about_model(config));
    if (have == 0 || have >= need)
        return;
    snprintf(
        text, sizeof text,
        "guests could use up the epoll watches that the service needs: fs.epoll.max_user_watches is %" PRIu64
        ", at least %" PRIu64 " is safe",
        have, need);
    say(text);
}
