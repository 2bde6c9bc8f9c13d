/* config/roots.h: the folders and files of mission.md 3, by real path. */
#pragma once

#include "config/config.h"

#include <sys/types.h>

struct roots {
    char *run, *workspaces, *state_dir; /* canonical */
    char *state_file, *admin_socket;    /* inside state_dir */
};
void roots_free(struct roots *r); /* back to empty; usable as CLEANUP(roots_free) */

/* Checks every rule: absolute, not "/", real folders of `uid` with mode 0700, the roots not inside one
 * another, the state outside both, the state file a regular file of that owner (or absent), every socket path
 * at most LIMIT_SOCKET_PATH. All faults at once, with the configuration's pointers and lines; ERR_CONFIG.
 * Reads the file system only. */
MUST_USE int roots_check(const struct config *c, uid_t uid, struct roots *ret, struct json_faults *faults,
                         struct err *err);
