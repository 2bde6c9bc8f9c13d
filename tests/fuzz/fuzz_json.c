/* Bodies as JSON, and the checker of all schemas: what is parsed keeps the house rules and survives being
 * written and read again; every fault names a place that is there. */
#include "support/fuzz.h"

#include "base/limits.h"
#include "schemas/embedded.h"
#include "schemas/schema.h"
#include "schemas/store.h"

#include <string.h>

static unsigned depth_of(const json_t *value)
{
    unsigned most = 0;
    const char *key;
    json_t *member;
    size_t i;

    json_array_foreach(value, i, member) {
        unsigned depth = depth_of(member);
        most = depth > most ? depth : most;
    }
    json_object_foreach((json_t *)(uintptr_t)value, key, member) {
        unsigned depth = depth_of(member);
        most = depth > most ? depth : most;
    }
    return most + (json_is_array(value) || json_is_object(value));
}

static void check_round_trip(const json_t *value)
{
    CLEANUP(free_str) char *text = NULL;
    CLEANUP(json_free) json_t *again = NULL;
    struct err err = {0};

    PROPERTY(depth_of(value) <= LIMIT_JSON_DEPTH, "%u levels", depth_of(value));
    PROPERTY(json_text(value, &text, &err) == 0, "not written: %s", err.text);
    PROPERTY(json_parse(text, strlen(text), &again, &err) == 0, "not read again: %s: %s", err.text, text);
    PROPERTY(json_equal(value, again), "changed on its way: %s", text);
}

/* What is absent and has a default must be acceptable with it. */
static void check_defaults(const json_t *value)
{
    CLEANUP(json_free) json_t *filled = json_deep_copy(value);
    struct json_faults faults = {0};
    struct err err = {0};

    PROPERTY(schema_defaults("config", filled, &err) == 0, "%s", err.text);
    PROPERTY(schema_check("config", filled, "", &faults) == 0, "a default breaks a rule");
    CLEANUP(json_free) json_t *again = json_deep_copy(filled);
    PROPERTY(schema_defaults("config", again, &err) == 0 && json_equal(filled, again),
             "defaults change what is whole");
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct err err = {0};

    (void)argc;
    (void)argv;
    PROPERTY(schema_load(&err) == 0, "%s", err.text);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(free_str) char *text = fuzz_text(data, size);
    CLEANUP(json_free) json_t *value = fuzz_json(text, size);

    if (!value)
        return 0;
    check_round_trip(value);
    for (const struct embedded_file *f = embedded_schemas; f->name; f++) {
        CLEANUP(json_faults_free) struct json_faults faults = {0};
        int rc = schema_check(f->name, value, "", &faults);
        PROPERTY((rc == 0) == (faults.total == 0), "%s: %d with %zu faults", f->name, rc, faults.total);
        fuzz_check_faults(value, &faults);
        if (rc == 0 && strcmp(f->name, "config") == 0)
            check_defaults(value);
    }
    return 0;
}
