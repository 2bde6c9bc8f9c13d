/* storage/keys.h: API keys (mission.md 4): kept as SHA-256, never in clear. All run inside a db job. */
#pragma once

#include "base/json.h"
#include "storage/db.h"

#define KEY_ID_SIZE    17 /* 16 hex digits */
#define KEY_TOKEN_SIZE 96 /* "clo_<id>_<64 hex digits>" */

enum scope {                       /* bits */
             SCOPE_TURNS = 1,      /* "turns": submit, read and cancel own */
             SCOPE_TURNS_READ = 2, /* "turns:read": read those of others in the key's channels, logs */
             SCOPE_CHANNELS = 4,   /* "channels" */
             SCOPE_FILES = 8,      /* "files" */
             SCOPE_ADMIN = 16,     /* "admin": all of the above, within the key's channels */
};

struct api_key {
    char id[KEY_ID_SIZE];
    char *name;
    unsigned scopes; /* enum scope bits */
    json_t *globs;   /* array of strings such as "web:*" */
    int64_t created_ms;
    int64_t revoked_ms; /* 0: in force */
    unsigned char hash[32];
};
void api_key_free(struct api_key *k); /* accepts NULL */
DEFINE_CLEANUP(struct api_key *, api_key_free)

/* "turns:read" → its bit; 0 when unknown. */
unsigned scope_parse(const char *name);
/* ["turns","channels"]; new reference, NULL when out of memory. */
json_t *scopes_json(unsigned scopes);
/* name 1 to 64 characters without control characters; ≥ 1 scope; ≥ 1 glob, each ≤ 200 bytes. ERR_INVALID.
 * Pure. */
MUST_USE int api_key_check(const char *name, unsigned scopes, const json_t *globs, struct err *err);

/* Makes a key; `token` receives the only copy of its secret. */
MUST_USE int keys_create(struct store *st, const char *name, unsigned scopes, const json_t *globs,
                         int64_t now_ms, char id[KEY_ID_SIZE], char token[KEY_TOKEN_SIZE], struct err *err);
/* ERR_NOT_FOUND. */
MUST_USE int keys_get(struct store *st, const char *id, struct api_key **ret, struct err *err);
/* ERR_NOT_FOUND; revoking twice keeps the first time. */
MUST_USE int keys_revoke(struct store *st, const char *id, int64_t now_ms, struct err *err);
/* In order of creation. */
MUST_USE int keys_each(struct store *st, int (*each)(const struct api_key *, void *, struct err *), void *arg,
                       struct err *err);
