/* memory.h: what a channel's agent remembers, in two scopes: the channel's, and one for each speaker, of
 * which only the current speaker's can be reached. One file, memory.json, {"version":1,
 * "channel":{key:value}, "speakers":{id:{key:value}}}, so that no id ever becomes a path. At most 256 entries
 * a scope, keys of 1 to 128 characters without control characters, values of at most 2,048 characters, the
 * file at most 512 KiB. Every change is on disk before it is answered. (mission.md section 7) */
#pragma once

#include "base/json.h"

enum memory_scope { MEMORY_SPEAKER, MEMORY_CHANNEL };

struct memory {
    json_t *root;        /* owned */
    int dirfd;           /* borrowed: the state folder */
    const char *speaker; /* borrowed: id of the current speaker */
};

/* Reads the file. Returns 0, or 1 when the file was there but not usable: then the memory starts empty and
 * err says why; -1 with ERR_NO_MEMORY. */
MUST_USE int memory_load(int dirfd, const char *speaker, struct memory *ret, struct err *err);
void memory_free(struct memory *m);

/* ERR_INVALID with a sentence for the model when a limit forbids it (nothing changed), else ERR_SYSTEM. */
MUST_USE int memory_set(struct memory *m, enum memory_scope scope, const char *key, const char *value,
                        struct err *err);
/* Borrowed until the next change; NULL when there is none. */
const char *memory_get(const struct memory *m, enum memory_scope scope, const char *key);
/* 0 also when there was none. */
MUST_USE int memory_remove(struct memory *m, enum memory_scope scope, const char *key, struct err *err);
/* All entries of a scope, key → value, borrowed; NULL when there is none. */
const json_t *memory_entries(const struct memory *m, enum memory_scope scope);
/* A preview for the system prompt: a JSON object of as many entries as 4 KiB hold, long values cut, then how
 * many are missing. ERR_NO_MEMORY. */
MUST_USE int memory_preview(const struct memory *m, enum memory_scope scope, struct buf *out,
                            struct err *err);
