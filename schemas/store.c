/* Loading of the embedded schemas, once. A schema with a keyword that the checker does not know would check
 * less than it says, so it is refused: the unit tests load every file. */
#include "schemas/store.h"

#include "schemas/embedded.h"

#include <pthread.h>
#include <string.h>

#define MAX_FILES    64
#define MAX_PATTERNS 64

static struct {
    const char *name;
    json_t *schema;
} files[MAX_FILES];
static size_t file_count;
static struct {
    const char *text;
    regex_t compiled;
} patterns[MAX_PATTERNS];
static size_t pattern_count;
static struct err load_failure;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const char *const known[] = {
    "type",
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "items",
    "minItems",
    "maxItems",
    "uniqueItems",
    "enum",
    "const",
    "minLength",
    "maxLength",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "oneOf",
    "anyOf",
    "allOf",
    "not",
    "$ref",
    "format",
    "title",
    "description",
    "default",
    "examples",
    "$schema",
    "$id",
    "$defs",
    "$comment",
};

static bool is_known(const char *keyword)
{
    if (strncmp(keyword, "x-", 2) == 0)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(known[i], keyword) == 0)
            return true;
    return false;
}

static int vet(const json_t *schema, struct err *err);

/* Compiling takes longer than all the rest of a check. */
static int compile(const char *text, struct err *err)
{
    if (schema_pattern(text))
        return 0;
    if (pattern_count == MAX_PATTERNS)
        return err_set(err, ERR_INTERNAL, "more than %d patterns", MAX_PATTERNS);
    if (regcomp(&patterns[pattern_count].compiled, text, REG_EXTENDED | REG_NOSUB) != 0)
        return err_set(err, ERR_INTERNAL, "the pattern %s does not compile", text);
    patterns[pattern_count++].text = text;
    return 0;
}

static int compile_all(const json_t *schema, struct err *err)
{
    const char *pattern = json_str(schema, "pattern");
    json_t *value;

    if (pattern && compile(pattern, err) < 0)
        return -1;
    json_object_foreach(json_object_get(schema, "patternProperties"), pattern, value)
        if (compile(pattern, err) < 0)
            return -1;
    return 0;
}

static int vet_map(const json_t *map, struct err *err)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)map, key, value)
        if (vet(value, err) < 0)
            return err_wrap(err, "%s", key);
    return 0;
}

/* Walks schema positions only: names of properties and values of enum are not keywords. */
static int vet(const json_t *schema, struct err *err)
{
    static const char *const maps[] = {"properties", "patternProperties", "$defs"};
    static const char *const single[] = {"items", "additionalProperties", "propertyNames", "not"};
    static const char *const lists[] = {"oneOf", "anyOf", "allOf"};
    const char *key;
    json_t *value;
    size_t i;

    if (json_is_boolean(schema))
        return 0;
    if (!json_is_object(schema))
        return err_set(err, ERR_INTERNAL, "a schema must be an object or a boolean");
    json_object_foreach((json_t *)(uintptr_t)schema, key, value)
        if (!is_known(key))
            return err_set(err, ERR_INTERNAL, "keyword %s is not known to the checker", key);
    if (compile_all(schema, err) < 0)
        return -1;
    for (i = 0; i < ARRAY_LEN(maps); i++)
        if ((value = json_object_get(schema, maps[i])) && vet_map(value, err) < 0)
            return err_wrap(err, "%s", maps[i]);
    for (i = 0; i < ARRAY_LEN(single); i++)
        if ((value = json_object_get(schema, single[i])) && vet(value, err) < 0)
            return err_wrap(err, "%s", single[i]);
    for (i = 0; i < ARRAY_LEN(lists); i++) {
        size_t n;
        json_array_foreach(json_object_get(schema, lists[i]), n, value)
            if (vet(value, err) < 0)
                return err_wrap(err, "%s", lists[i]);
    }
    return 0;
}

static void load(void)
{
    for (const struct embedded_file *f = embedded_schemas; f->name; f++) {
        json_t *schema = NULL;
        if (file_count == MAX_FILES) {
            err_set(&load_failure, ERR_INTERNAL, "more than %d schemas", MAX_FILES);
            return;
        }
        if (json_parse(f->data, f->len, &schema, &load_failure) < 0 || vet(schema, &load_failure) < 0) {
            err_wrap(&load_failure, "schemas/%s.json", f->name);
            json_decref(schema);
            return;
        }
        files[file_count].name = f->name;
        files[file_count++].schema = schema;
    }
}

int schema_load(struct err *err)
{
    pthread_once(&once, load);
    if (load_failure.code != ERR_NONE) {
        *err = load_failure;
        return -1;
    }
    return 0;
}

regex_t *schema_pattern(const char *pattern)
{
    for (size_t i = 0; i < pattern_count; i++)
        if (strcmp(patterns[i].text, pattern) == 0)
            return &patterns[i].compiled;
    return NULL;
}

const json_t *schema_get(const char *name)
{
    pthread_once(&once, load);
    for (size_t i = 0; i < file_count; i++)
        if (strcmp(files[i].name, name) == 0)
            return files[i].schema;
    return NULL;
}

const json_t *schema_resolve(const char *file, const char *ref, const char **ret_file)
{
    char name[64];
    const char *fragment = strchr(ref, '#');

    pthread_once(&once, load);
    if (!fragment)
        fragment = ref + strlen(ref);
    if (fragment > ref) {
        size_t len = (size_t)(fragment - ref);
        if (len <= 5 || len >= sizeof name || strncmp(fragment - 5, ".json", 5) != 0)
            return NULL;
        memcpy(name, ref, len - 5);
        name[len - 5] = '\0';
        file = NULL;
        for (size_t i = 0; i < file_count; i++)
            if (strcmp(files[i].name, name) == 0)
                file = files[i].name;
        if (!file)
            return NULL;
    }
    *ret_file = file;
    const json_t *at = schema_get(file);
    if (*fragment == '\0' || strcmp(fragment, "#") == 0)
        return at;
    if (strncmp(fragment, "#/$defs/", 8) != 0)
        return NULL;
    return json_object_get(json_object_get(at, "$defs"), fragment + 8);
}
