/* schemas/schema.h: checks JSON values against the embedded schemas/NAME.json, the one source of what bodies
 * and configuration may hold. JSON Schema 2020-12, of which these keywords are known and anything else is
 * refused when the schema is loaded: type properties required additionalProperties patternProperties
 * propertyNames minProperties maxProperties items minItems maxItems uniqueItems enum const minLength
 * maxLength (code points) pattern (POSIX ERE) minimum maximum exclusiveMinimum oneOf anyOf allOf not $ref
 * ("#/$defs/x" or "file.json#/$defs/x") format ("no-control"); and as notes: title description default
 * examples $schema $id $defs, x-… x-rule is the sentence for a failed oneOf or anyOf; below x-checked-by
 * nothing is checked: the header that it names has the same rules with better sentences. Thread-safe: schemas
 * are loaded once and only read afterwards. */
#pragma once

#include "base/json.h"

/* `name` is a file without .json ("turn_request"), or FILE#DEFINITION ("common#message"). Adds every fault of
 * the value, each with its JSON pointer below `base` ("" for the whole document). Returns 0 when none was
 * added, else -1. An unknown schema name is a fault too. */
int schema_check(const char *name, const json_t *value, const char *base, struct json_faults *faults);
/* Puts the `default` of every absent member into the object, down through `properties`. */
MUST_USE int schema_defaults(const char *name, json_t *object, struct err *err);

/* The parsed schema, borrowed for ever; NULL when there is none of that name. */
const json_t *schema_get(const char *name);
