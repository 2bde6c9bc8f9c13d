/* schemas/store.h: the loaded schemas, for the checker and its tests. Thread-safe. */
#pragma once

#include "schemas/schema.h"

#include <regex.h>
#include <stdbool.h>

/* Loads and vets all embedded schemas (once). ERR_INTERNAL names the file and the keyword. */
MUST_USE int schema_load(struct err *err);
/* The schema that `ref` means inside `file`; *ret_file is the file it lies in. NULL when there is none. */
const json_t *schema_resolve(const char *file, const char *ref, const char **ret_file);
/* A pattern of a loaded schema, compiled once; re_search may be used on it by any thread. NULL: it is not of
 * one. */
regex_t *schema_pattern(const char *pattern);
