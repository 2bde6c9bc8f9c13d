/* auth/auth.h: who is calling, and what that caller may see (mission.md 4). Nothing is allowed by default. */
#pragma once

#include "auth/known.h"

#include <stdbool.h>

/* The caller of one request. Immutable; owned by the request. */
struct principal {
    char key_id[KEY_ID_SIZE]; /* "" for the local administrator (admin socket, command line) */
    unsigned scopes;
    json_t *globs; /* NULL for the local administrator, who sees every channel */
};
void principal_free(struct principal *p); /* accepts NULL */
DEFINE_CLEANUP(struct principal *, principal_free)

/* The administrator on this machine, proven by SO_PEERCRED. */
MUST_USE int principal_local(struct principal **ret, struct err *err);
/* From the value of Authorization ("Bearer clo_…"); NULL when absent. ERR_UNAUTHORIZED for anything that is
 * not a key in force, always after a look into the state and a comparison in constant time. */
MUST_USE int principal_from_header(struct known *known, const char *authorization, struct principal **ret,
                                   struct err *err);

/* True when the principal has at least one of the scopes. */
bool auth_scope(const struct principal *p, unsigned any_of);
/* The one authorisation function: may this principal see (or act on) a thing of this channel, owned by that
 * key? `own` are the scopes that suffice for a thing of its own, `others` those for anybody's; owner NULL:
 * the thing has no owner (a channel) and `others` decides. What it may not see is 404 for the caller. */
bool auth_allows(const struct principal *p, unsigned own, unsigned others, const char *channel,
                 const char *owner);
/* '*' stands for any run of bytes, all else for itself. Pure. */
bool auth_glob(const char *glob, const char *text);
