/* storage/reserve.h: space kept aside beside the database and given up when the disk is full, so that the
 * endings of running turns can still be written (mission.md 3). Used by the writer thread only. */
#pragma once

#include "base/err.h"

#include <stdbool.h>

#define RESERVE_BYTES (8 * 1024 * 1024)

struct reserve {
    char *path; /* owned */
    bool held;
};
MUST_USE int reserve_init(struct reserve *r, const char *database_path, struct err *err);
/* Takes the space if it is not held: what lies there already, or new space when the disk is above its floor;
 * failing is no error: it is tried again. */
void reserve_take(struct reserve *r);
/* True when there was something to give up. */
bool reserve_release(struct reserve *r);
void reserve_done(struct reserve *r); /* keeps the file */
