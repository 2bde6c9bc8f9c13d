#include "schemas/model_input.h"
#include "schemas/place.h"

static void walk_map(const json_t *map, const struct place *at, struct json_faults *faults)
{
    const char *name;
    json_t *entry;

    if (!json_is_object(map)) {
        place_fault(faults, at, "must be an object of schemas");
        return;
    }
    json_object_foreach(place_iterable(map), name, entry)
        place_check_schema(entry, &MEMBER(at, name), faults);
}

static void walk_list(const json_t *list, const struct place *at, struct json_faults *faults)
{
    if (!json_is_array(list)) {
        place_fault(faults, at, "must be an array of schemas");
        return;
    }
    for (size_t i = 0; i < json_array_size(list); i++)
        place_check_schema(json_array_get(list, i), &ELEMENT(at, i), faults);
}

static void walk_one_or_list(const json_t *value, const struct place *at, struct json_faults *faults)
{
    if (json_is_array(value))
        walk_list(value, at, faults);
    else
        place_check_schema(value, at, faults);
}

/* Each entry is a schema, or an array of property names, which is data. */
static void walk_dependencies(const json_t *map, const struct place *at, struct json_faults *faults)
{
    const char *name;
    json_t *entry;

    if (!json_is_object(map)) {
        place_fault(faults, at, "must be an object of schemas or arrays");
        return;
    }
    json_object_foreach(place_iterable(map), name, entry) {
        if (!json_is_array(entry))
            place_check_schema(entry, &MEMBER(at, name), faults);
    }
}

static void check_reference(const json_t *value, const struct place *at, struct json_faults *faults)
{
    const char *text = json_string_value(value);

    if (!text || text[0] != '#')
        place_fault(faults, at, "must be a string that starts with #");
}

static void check_vocabulary(const json_t *value, const struct place *at, struct json_faults *faults)
{
    const char *uri;
    json_t *entry;

    if (!json_is_object(value)) {
        place_fault(faults, at, "must be an object");
        return;
    }
    json_object_foreach(place_iterable(value), uri, entry) {
        if (uri[0] != '#')
            place_fault(faults, &MEMBER(at, uri), "must have keys that start with #");
    }
}

static const struct {
    const char *name;
    void (*check)(const json_t *value, const struct place *at, struct json_faults *faults);
} keywords[] = {
    {"$ref", check_reference},
    {"$dynamicRef", check_reference},
    {"$recursiveRef", check_reference},
    {"$schema", check_reference},
    {"$id", check_reference},
    {"$vocabulary", check_vocabulary},
    {"properties", walk_map},
    {"patternProperties", walk_map},
    {"$defs", walk_map},
    {"definitions", walk_map},
    {"dependentSchemas", walk_map},
    {"items", walk_one_or_list},
    {"contains", walk_one_or_list},
    {"additionalProperties", walk_one_or_list},
    {"unevaluatedProperties", walk_one_or_list},
    {"unevaluatedItems", walk_one_or_list},
    {"propertyNames", walk_one_or_list},
    {"not", walk_one_or_list},
    {"if", walk_one_or_list},
    {"then", walk_one_or_list},
    {"else", walk_one_or_list},
    {"contentSchema", walk_one_or_list},
    {"additionalItems", walk_one_or_list},
    {"allOf", walk_list},
    {"anyOf", walk_list},
    {"oneOf", walk_list},
    {"prefixItems", walk_list},
    {"dependencies", walk_dependencies},
};

void place_check_schema(const json_t *schema, const struct place *at, struct json_faults *faults)
{
    if (json_is_boolean(schema))
        return;
    if (!json_is_object(schema)) {
        place_fault(faults, at, "must be a schema: an object, true or false");
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(keywords); i++) {
        const json_t *value = json_object_get(schema, keywords[i].name);
        if (value)
            keywords[i].check(value, &MEMBER(at, keywords[i].name), faults);
    }
}

int json_schema_local(const json_t *schema, const char *pointer, struct json_faults *faults)
{
    size_t before = faults->total;

    place_check_schema(schema, &TOP(pointer), faults);
    return faults->total == before ? 0 : -1;
}
