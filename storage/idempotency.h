/* storage/idempotency.h: Idempotency-Key of POST /v1/turns (http.md): which turn a key's name stands for. Run
 * inside a db job. A name lives as long as its turn, at least 24 h. */
#pragma once

#include "storage/db.h"
#include "storage/turns.h"

/* ERR_NOT_FOUND when the API key has not used this name; ERR_INVALID when it did for another body. */
MUST_USE int idempotency_find(struct store *st, const char *key_id, const char *name,
                              const unsigned char hash[32], char turn_id[TURN_ID_SIZE], struct err *err);
/* Together with turns_insert of the same job. */
MUST_USE int idempotency_put(struct store *st, const char *key_id, const char *name,
                             const unsigned char hash[32], const char *turn_id, int64_t now_ms,
                             struct err *err);
