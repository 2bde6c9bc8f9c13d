/* The checker. One pass, every fault with its pointer; `probe` runs are those of oneOf/anyOf/not, whose
 * faults are counted and thrown away. Recursion is bounded by the depth of the value (base/json.h) and of the
 * schemas. */
#include "schemas/schema.h"

#include "base/limits.h"
#include "base/utf8.h"
#include "schemas/store.h"

#include <regex.h>
#include <string.h>

#define MAX_DEPTH (4 * LIMIT_JSON_DEPTH)

struct walk {
    const char *file; /* whose $ref "#/…" are meant */
    struct json_faults *faults;
    struct buf pointer;
    unsigned depth;
};

static void check(struct walk *w, const json_t *schema, const json_t *value);

static const char *at(const struct walk *w)
{
    return w->pointer.data ? w->pointer.data : "";
}

static void step_back(struct walk *w, size_t len)
{
    w->pointer.len = len;
    if (w->pointer.data)
        w->pointer.data[len] = '\0';
}

/* One step further down. -1 where the name does not fit, -2 without memory: the place stays what it was. */
static int step_down(struct walk *w, const char *token)
{
    size_t len = w->pointer.len;
    struct err err;

    if (json_pointer_add(&w->pointer, token, &err) == 0)
        return 0;
    step_back(w, len);
    return err.code == ERR_NO_MEMORY ? -2 : -1;
}

/* Checks a member or an item one step further down. */
static void descend(struct walk *w, const char *token, const json_t *schema, const json_t *value)
{
    size_t len = w->pointer.len;

    int rc = step_down(w, token);
    if (rc == -2)
        json_faults_no_memory(w->faults);
    else if (rc < 0)
        json_fault(w->faults, at(w), "the place lies too deep to be named");
    else
        check(w, schema, value);
    step_back(w, len);
}

static bool type_is(const json_t *value, const char *type)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "object",   [JSON_ARRAY] = "array", [JSON_STRING] = "string",
        [JSON_INTEGER] = "integer", [JSON_REAL] = "number", [JSON_TRUE] = "boolean",
        [JSON_FALSE] = "boolean",   [JSON_NULL] = "null"};

    if (strcmp(names[json_typeof(value)], type) == 0)
        return true;
    return strcmp(type, "number") == 0 && json_is_integer(value);
}

static void check_type(struct walk *w, const json_t *type, const json_t *value)
{
    size_t i;
    json_t *one;

    if (json_is_string(type)) {
        if (!type_is(value, json_string_value(type)))
            json_fault(w->faults, at(w), "must be of type %s", json_string_value(type));
        return;
    }
    json_array_foreach(type, i, one)
        if (type_is(value, json_string_value(one)))
            return;
    json_fault(w->faults, at(w), "has a type that is not allowed here");
}

/* Without memory for an answer that is the fault, and the caller is to add none: regexec would say "no match"
 * then; re_search says -2. */
static bool matches(struct walk *w, const char *pattern, const char *text)
{
    regoff_t len = (regoff_t)strlen(text);
    regoff_t found = re_search(schema_pattern(pattern), text, len, 0, len, NULL);

    if (found == -2)
        json_faults_no_memory(w->faults);
    return found != -1;
}

static void check_string(struct walk *w, const json_t *schema, const json_t *value)
{
    const char *text = json_string_value(value);
    size_t len = json_string_length(value), chars = utf8_chars(text, len);
    json_t *rule;

    if ((rule = json_object_get(schema, "minLength")) && (json_int_t)chars < json_integer_value(rule)) {
        if (chars == 0)
            json_fault(w->faults, at(w), "must not be empty");
        else
            json_fault(w->faults, at(w), "must have at least %lld characters",
                       (long long)json_integer_value(rule));
    }
    if ((rule = json_object_get(schema, "maxLength")) && (json_int_t)chars > json_integer_value(rule))
        json_fault(w->faults, at(w), "must have at most %lld characters, has %zu",
                   (long long)json_integer_value(rule), chars);
    if ((rule = json_object_get(schema, "pattern")) && !matches(w, json_string_value(rule), text))
        json_fault(w->faults, at(w), "must match %s", json_string_value(rule));
    const char *format = json_str(schema, "format");
    if (format && strcmp(format, "no-control") == 0 && utf8_has_control(text, len))
        json_fault(w->faults, at(w), "must not hold control characters");
}

static void check_number(struct walk *w, const json_t *schema, const json_t *value)
{
    double n = json_number_value(value);
    json_t *rule;

    if ((rule = json_object_get(schema, "minimum")) && n < json_number_value(rule))
        json_fault(w->faults, at(w), "must be at least %.15g", json_number_value(rule));
    if ((rule = json_object_get(schema, "exclusiveMinimum")) && n <= json_number_value(rule))
        json_fault(w->faults, at(w), "must be more than %.15g", json_number_value(rule));
    if ((rule = json_object_get(schema, "maximum")) && n > json_number_value(rule))
        json_fault(w->faults, at(w), "must be at most %.15g", json_number_value(rule));
}

static void check_count(struct walk *w, const json_t *schema, const char *least, const char *most, size_t n,
                        const char *what)
{
    json_t *rule;

    if ((rule = json_object_get(schema, least)) && (json_int_t)n < json_integer_value(rule))
        json_fault(w->faults, at(w), "must have at least %lld %s", (long long)json_integer_value(rule), what);
    if ((rule = json_object_get(schema, most)) && (json_int_t)n > json_integer_value(rule))
        json_fault(w->faults, at(w), "must have at most %lld %s, has %zu",
                   (long long)json_integer_value(rule), what, n);
}

static void check_array(struct walk *w, const json_t *schema, const json_t *value)
{
    json_t *items = json_object_get(schema, "items"), *item;
    size_t i;

    check_count(w, schema, "minItems", "maxItems", json_array_size(value), "entries");
    json_array_foreach(value, i, item) {
        char token[24];
        snprintf(token, sizeof token, "%zu", i);
        if (items)
            descend(w, token, items, item);
        if (!json_is_true(json_object_get(schema, "uniqueItems")))
            continue;
        for (size_t j = 0; j < i; j++)
            if (json_equal(json_array_get(value, j), item)) {
                json_fault(w->faults, at(w), "entries %zu and %zu are the same", j, i);
                break;
            }
    }
}

/* The member's schemas: its own, those of matching patterns, else additionalProperties. */
static void check_member(struct walk *w, const json_t *schema, const char *key, const json_t *member)
{
    json_t *own = json_object_get(json_object_get(schema, "properties"), key);
    json_t *additional = json_object_get(schema, "additionalProperties"), *sub;
    json_t *patterns = json_object_get(schema, "patternProperties");
    const char *pattern;
    bool known = own != NULL;

    if (own)
        descend(w, key, own, member);
    json_object_foreach(patterns, pattern, sub)
        if (matches(w, pattern, key)) {
            known = true;
            descend(w, key, sub, member);
        }
    if (known || !additional)
        return;
    if (!json_is_false(additional)) {
        descend(w, key, additional, member);
        return;
    }
    size_t len = w->pointer.len;
    bool named = step_down(w, key) == 0;
    json_fault(w->faults, at(w),
               named ? "is not known here" : "a member with a very long name is not known here");
    step_back(w, len);
}

static void check_object(struct walk *w, const json_t *schema, const json_t *value)
{
    json_t *names = json_object_get(schema, "propertyNames"), *member, *name;
    const char *key;
    size_t i;

    check_count(w, schema, "minProperties", "maxProperties", json_object_size(value), "members");
    json_array_foreach(json_object_get(schema, "required"), i, name)
        if (!json_object_get(value, json_string_value(name)))
            json_fault(w->faults, at(w), "%s is missing", json_string_value(name));
    json_object_foreach((json_t *)(uintptr_t)value, key, member) {
        if (names) {
            json_t *text = json_string(key);
            if (text)
                descend(w, key, names, text);
            else
                json_faults_no_memory(w->faults);
            json_decref(text);
        }
        check_member(w, schema, key, member);
    }
}

/* How many faults the value has under this schema; they are not reported. */
static size_t probe(struct walk *w, const json_t *schema, const json_t *value)
{
    struct json_faults mine = {0}, *outer = w->faults;

    w->faults = &mine;
    check(w, schema, value);
    w->faults = outer;
    size_t total = mine.total;
    if (mine.no_memory) /* what seems to break a rule may keep it, which `not` would turn around */
        json_faults_no_memory(outer);
    json_faults_free(&mine);
    return total;
}

static void check_combined(struct walk *w, const json_t *schema, const json_t *value)
{
    json_t *list, *one;
    size_t i, hits = 0;

    json_array_foreach(json_object_get(schema, "allOf"), i, one)
        check(w, one, value);
    if ((list = json_object_get(schema, "oneOf"))) {
        json_array_foreach(list, i, one)
            hits += probe(w, one, value) == 0;
        const char *why = json_str(schema, "x-rule");
        if (hits != 1)
            json_fault(w->faults, at(w), "%s", why ? why : "must be exactly one of the allowed forms");
    }
    if ((list = json_object_get(schema, "anyOf"))) {
        hits = 0;
        json_array_foreach(list, i, one)
            hits += probe(w, one, value) == 0;
        const char *why = json_str(schema, "x-rule");
        if (hits == 0)
            json_fault(w->faults, at(w), "%s", why ? why : "is none of the allowed forms");
    }
    if ((one = json_object_get(schema, "not")) && probe(w, one, value) == 0)
        json_fault(w->faults, at(w), "has a form that is refused here");
}

static void check_values(struct walk *w, const json_t *schema, const json_t *value)
{
    json_t *rule, *one;
    size_t i;

    if ((rule = json_object_get(schema, "const")) && !json_equal(rule, value))
        json_fault(w->faults, at(w), "has a value that is not allowed here");
    if (!(rule = json_object_get(schema, "enum")))
        return;
    struct buf allowed = BUF_INIT(400);
    struct err err;
    json_array_foreach(rule, i, one) {
        if (json_equal(one, value)) {
            buf_free(&allowed);
            return;
        }
        if (json_is_string(one) &&
            buf_addf(&allowed, &err, "%s%s", i ? ", " : "", json_string_value(one)) < 0)
            break; /* a long list is told as far as it fits */
    }
    json_fault(w->faults, at(w), "must be one of: %s", allowed.data ? allowed.data : "the allowed values");
    buf_free(&allowed);
}

static void check_ref(struct walk *w, const char *ref, const json_t *value)
{
    const char *file = w->file, *outer = w->file;
    const json_t *target = schema_resolve(w->file, ref, &file);

    if (!target) {
        json_fault(w->faults, at(w), "the schema's reference %s leads nowhere", ref);
        return;
    }
    w->file = file;
    check(w, target, value);
    w->file = outer;
}

static void check(struct walk *w, const json_t *schema, const json_t *value)
{
    if (json_is_true(schema) || json_object_get(schema, "x-checked-by"))
        return;
    if (json_is_false(schema) || ++w->depth > MAX_DEPTH) {
        json_fault(w->faults, at(w), "is not allowed here");
        if (!json_is_false(schema))
            w->depth--;
        return;
    }
    const char *ref = json_str(schema, "$ref");
    json_t *type = json_object_get(schema, "type");
    size_t before = w->faults->total;

    if (ref)
        check_ref(w, ref, value);
    if (type)
        check_type(w, type, value);
    if (w->faults->total == before) { /* a wrong type makes the other sentences noise */
        check_values(w, schema, value);
        if (json_is_string(value))
            check_string(w, schema, value);
        else if (json_is_number(value))
            check_number(w, schema, value);
        else if (json_is_array(value))
            check_array(w, schema, value);
        else if (json_is_object(value))
            check_object(w, schema, value);
        check_combined(w, schema, value);
    }
    w->depth--;
}

/* "turn_request" → that file; "answers#turn" → a definition in it. */
static const json_t *find(const char *name, const char **file)
{
    const char *hash = strchr(name, '#');
    char ref[160];

    if (!hash)
        return schema_resolve(name, "#", file);
    snprintf(ref, sizeof ref, "%.*s.json#/$defs/%s", (int)(hash - name), name, hash + 1);
    return schema_resolve(name, ref, file);
}

int schema_check(const char *name, const json_t *value, const char *base, struct json_faults *faults)
{
    struct walk w = {.file = name, .faults = faults, .pointer = BUF_INIT(4096)};
    const json_t *schema = find(name, &w.file);
    size_t before = faults->total;
    struct err err;

    if (!schema)
        json_fault(faults, base, "there is no schema %s", name);
    else if (buf_adds(&w.pointer, base, &err) < 0 && err.code == ERR_NO_MEMORY)
        json_faults_no_memory(faults);
    else if (w.pointer.len < strlen(base))
        json_fault(faults, "", "the place lies too deep to be named");
    else
        check(&w, schema, value);
    buf_free(&w.pointer);
    return faults->total == before ? 0 : -1;
}

static int fill(const char *file, const json_t *schema, json_t *object, struct err *err)
{
    const char *key;
    json_t *sub;

    json_object_foreach(json_object_get(schema, "properties"), key, sub) {
        const char *ref = json_str(sub, "$ref"), *sub_file = file;
        const json_t *target = ref ? schema_resolve(file, ref, &sub_file) : sub;
        json_t *have = json_object_get(object, key), *value = json_object_get(sub, "default");
        if (!have && value) {
            have = json_clone(value);
            if (!have || json_object_set_new(object, key, have) < 0)
                return err_no_memory(err);
        }
        if (json_is_object(have) && target && fill(sub_file, target, have, err) < 0)
            return -1;
    }
    return 0;
}

int schema_defaults(const char *name, json_t *object, struct err *err)
{
    return fill(name, schema_get(name), object, err);
}
