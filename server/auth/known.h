/* auth/known.h: keys in force, as they were read last; most requests bring one of few. Thread-safe. */
#pragma once

#include "storage/db.h"
#include "storage/keys.h"

struct known;
/* `db` is borrowed, and outlives it. */
MUST_USE int known_new(struct db *db, struct known **ret, struct err *err);
void known_free(struct known *known); /* accepts NULL */

struct key_facts {
    unsigned char hash[32];
    unsigned scopes;
    json_t *globs; /* NULL: there is no such key in force; else the caller's */
};
/* From memory or from the database. What is not in force is looked up each time. */
MUST_USE int known_find(struct known *known, const char *id, struct key_facts *ret, struct err *err);
/* After the commit that revoked a key, before anybody is told: later calls read the database. */
void known_forget(struct known *known);
