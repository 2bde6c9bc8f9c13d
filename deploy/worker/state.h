/* state.h: the worker's own files, in the folder `.cloister` of the workspace. Whoever ran there before may
 * have put anything in their place: no symlink is followed, only regular files are read, and what is in the
 * way of a write is removed. One worker at a time per workspace, so one name for the temporary file is enough
 * and none is left behind by a worker that was killed. */
#pragma once

#include "base/buf.h"

/* Opens the folder, making it (0700) when it is absent; what is no folder is replaced. Returns a descriptor
 * that the caller closes, or -1. */
MUST_USE int state_open(const char *workspace, struct err *err);
/* The whole file into b. ERR_NOT_FOUND when absent; ERR_TOO_LARGE beyond b->max; ERR_SYSTEM otherwise. */
MUST_USE int state_read(int dirfd, const char *name, struct buf *b, struct err *err);
/* Replaces the file: temporary file (0600), fsync, rename. */
MUST_USE int state_write(int dirfd, const char *name, const char *data, size_t len, struct err *err);
