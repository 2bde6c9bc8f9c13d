#include "base/limits.h"
#include "handlers/access.h"
#include "handlers/resources.h"

#define TURNS    SCOPE_TURNS
#define READ     SCOPE_TURNS_READ
#define CHANNELS SCOPE_CHANNELS
#define OPEN     SCOPE_OPEN
#define SMALL    LIMIT_SMALL_BODY

#define TURNS_QUERY "channel status speaker since until limit cursor"

/* clang-format off */
#define SHARED_ROUTES                                                                               \
    /* method  path                           scope         body             query           handler */ \
    {"POST",   "/v1/turns",                   TURNS,        LIMIT_TURN_BODY, NULL,           turns_create},   \
    {"GET",    "/v1/turns",                   TURNS | READ, 0,               TURNS_QUERY,    turns_list_get}, \
    {"POST",   "/v1/turns/{id}/cancel",       TURNS,        0,               NULL,           turn_cancel},    \
    {"GET",    "/v1/turns/{id}",              TURNS | READ, 0,               NULL,           turns_read},     \
    {"GET",    "/v1/turns/{id}/events",       TURNS | READ, 0,               "after limit",  turn_events},    \
    {"GET",    "/v1/channels",                CHANNELS,     0,               "limit cursor", channels_list},  \
    {"GET",    "/v1/channels/{key}",          CHANNELS,     0,               NULL,           channel_read},   \
    {"PUT",    "/v1/channels/{key}",          CHANNELS,     SMALL,           NULL,           channel_put},    \
    {"DELETE", "/v1/channels/{key}",          CHANNELS,     0,               NULL,           channel_delete}, \
    {"POST",   "/v1/channels/{key}/reset",    CHANNELS,     0,               NULL,           channel_reset},  \
    {"POST",   "/v1/channels/{key}/stop",     CHANNELS,     0,               NULL,           channel_stop},   \
    {"GET",    "/livez",                      OPEN,         0,               NULL,           livez},          \
    {"GET",    "/readyz",                     OPEN,         0,               NULL,           readyz},         \
    {"GET",    "/openapi.yaml",               OPEN,         0,               NULL,           openapi_get}

const struct http_route service_routes[] = {
    SHARED_ROUTES,
    {0},
};

const struct http_route admin_routes[] = {
    SHARED_ROUTES,
    {"POST",   "/v1/keys",                    SCOPE_ADMIN,  SMALL,           NULL,           key_create},
    {"GET",    "/v1/keys",                    SCOPE_ADMIN,  0,               NULL,           keys_list},
    {"DELETE", "/v1/keys/{id}",               SCOPE_ADMIN,  0,               NULL,           key_delete},
    {0},
};
/* clang-format on */
