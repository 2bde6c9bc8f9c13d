/* config/yaml.h: a YAML document as jansson values (libyaml). Mappings, sequences and scalars of the core
 * schema; anchors, aliases, tags, duplicate keys and further documents are refused. Pure. */
#pragma once

#include "base/json.h"

/* *lines maps the JSON pointer of every value to its line, from 1. An empty document is an empty object.
 * ERR_CONFIG with the line. Both results are the caller's. */
MUST_USE int yaml_parse(const char *text, size_t len, json_t **ret, json_t **lines, struct err *err);
/* One plain scalar as the core schema reads it: null, true, 12, 1.5, else a string. New reference or NULL. */
json_t *yaml_scalar(const char *text, size_t len);
