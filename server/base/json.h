/* base/json.h: jansson with the house rules: duplicates refused, depth bounded, errors with line and column.
 */
#pragma once

#include "base/buf.h"

#include <jansson.h>
#include <stdbool.h>

/* CLEANUP(json_free) json_t *v */
static inline void json_free(json_t **v)
{
    json_decref(*v);
}

static inline json_t *json_steal(json_t **v)
{
    json_t *stolen = *v;
    *v = NULL;
    return stolen;
}

/* Parses one JSON value, any type. ERR_INVALID_JSON with line and column: syntax, duplicate key, NUL, invalid
 * UTF-8, number out of range, deeper than LIMIT_JSON_DEPTH, text after the value. *ret is the caller's. */
MUST_USE int json_parse(const char *text, size_t len, json_t **ret, struct err *err);
/* Compact text, keys in insertion order; caller frees. ERR_NO_MEMORY. */
MUST_USE int json_text(const json_t *value, char **ret, struct err *err);

/* A deep copy, whole or NULL without memory. */
json_t *json_clone(const json_t *value);

/* Borrowed string member, or NULL when absent or no string. */
const char *json_str(const json_t *object, const char *key);
/* Appends "/token" to a JSON pointer, escaping ~ and /. (RFC 6901) */
MUST_USE int json_pointer_add(struct buf *pointer, const char *token, struct err *err);

/* What is wrong with a value, all at once: [{"pointer": "/a/0", "detail": "…"}]. At most JSON_FAULTS_MAX are
 * kept. Owned by the caller; json_faults_free accepts an untouched one. */
#define JSON_FAULTS_MAX 32
struct json_faults {
    json_t *list;   /* NULL while there is none */
    size_t total;   /* also those that were not kept */
    bool no_memory; /* something could not be looked at or noted, which counts in total too */
};
/* Adds one. Out of memory counts as a fault as well, so that nothing invalid passes. */
void json_fault(struct json_faults *faults, const char *pointer, const char *fmt, ...) FORMAT(3, 4);
/* There was no memory for a look: a fault, but none of the value. */
void json_faults_no_memory(struct json_faults *faults);
/* The error of a value with faults, -1: ERR_INVALID, or ERR_NO_MEMORY (and none in the list), since then the
 * value may be as good as any. */
int json_faults_error(struct json_faults *faults, struct err *err);
void json_faults_free(struct json_faults *faults);
