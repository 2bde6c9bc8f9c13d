/* storage/lock.h: one server per state (mission.md 3). */
#pragma once

#include "base/err.h"

/* Takes an exclusive lock on PATH.lock, held until the descriptor is closed or the process ends. Returns the
 * descriptor; ERR_CONFLICT when another process holds it. */
MUST_USE int state_lock(const char *state_file, struct err *err);
