/* server/broker/env.h: what all brokers share, as the room's own files see it. Does not change once made. */
#pragma once

#include "broker/broker.h"
#include "broker/watchdog.h"
#include "upstream/upstream.h"

enum model_way { MODEL_UPSTREAM, MODEL_ECHO, MODEL_SCRIPT };

struct broker_env {
    enum model_way way;
    char *url, *name;
    unsigned max_tokens, max_calls;
    bool allow_http;
    struct credential_source *credential; /* NULL: none */
    struct upstream *upstream;
    struct watchdog *watchdog;
};
