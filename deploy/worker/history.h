/* history.h: the last ten exchanges of a channel, oldest first, in history.json: [{"speaker":{"id","name"},
 * "user":…, "assistant":…}]. The two texts of an exchange together take at most 8 KiB as JSON.
 * (mission.md section 7) */
#pragma once

#include "base/json.h"

/* Reads the file into a fresh array. Returns 0, or 1 when the file was there but not usable: then the history
 * starts empty and err says why; -1 with ERR_NO_MEMORY. */
MUST_USE int history_load(int dirfd, json_t **ret, struct err *err);
/* Appends an exchange, cut to its size, and lets the oldest go beyond ten. ERR_NO_MEMORY. */
MUST_USE int history_add(json_t *history, const char *speaker_id, const char *speaker_name, const char *user,
                         const char *assistant, struct err *err);
/* Replaces the file. */
MUST_USE int history_save(int dirfd, const json_t *history, struct err *err);
/* Removes the file; absent is fine. */
MUST_USE int history_clear(int dirfd, struct err *err);
