/* storage/channels.h: routing state (mission.md 4). All run inside a db job. */
#pragma once

#include "base/json.h"
#include "storage/db.h"

#include <stdbool.h>

struct channel {
    char *key;
    bool enabled;
    int64_t version;         /* grows with every change; the ETag */
    int64_t reset_requested; /* resets asked for so far */
    int64_t reset_applied;   /* resets that a successful turn has carried out */
    int64_t created_ms, updated_ms;
};
void channel_free(struct channel *c); /* accepts NULL */
DEFINE_CLEANUP(struct channel *, channel_free)

static inline bool channel_reset_pending(const struct channel *c)
{
    return c->reset_requested > c->reset_applied;
}

/* "web:lobby": ERR_INVALID names the rule of mission.md 1 that is broken. Pure. */
MUST_USE int channel_key_check(const char *key, struct err *err);

/* ERR_NOT_FOUND when there is none. */
MUST_USE int channels_get(struct store *st, const char *key, struct channel **ret, struct err *err);
/* ERR_CHANNEL_DISABLED when it is not enabled, or not known. *ret is the caller's also then. */
MUST_USE int channels_expect_enabled(struct store *st, const char *key, struct channel **ret,
                                     struct err *err);
/* Makes or changes. `if_version`: -1 any; 0 must not exist; else must have that version (ERR_PRECONDITION).
 */
MUST_USE int channels_put(struct store *st, const char *key, bool enabled, int64_t if_version, int64_t now_ms,
                          struct err *err);
/* ERR_NOT_FOUND, ERR_PRECONDITION. The caller has made sure that nothing runs. Turns and workspace stay. */
MUST_USE int channels_delete(struct store *st, const char *key, int64_t if_version, struct err *err);
/* Asks that the next successful turn begin without history. ERR_NOT_FOUND. */
MUST_USE int channels_reset(struct store *st, const char *key, int64_t now_ms, struct err *err);
/* Channels in order of key, after `after` ("" from the start). Calls each(c, arg), which may
 * return 1 to stop or -1 with an error; the channel is borrowed for the call. */
MUST_USE int channels_each(struct store *st, const char *after,
                           int (*each)(const struct channel *, void *, struct err *), void *arg,
                           struct err *err);
