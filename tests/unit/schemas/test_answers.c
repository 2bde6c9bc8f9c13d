/* The codes in schemas/answers.json are those of the tables that make them. */
#include "base/ending.h"
#include "base/err.h"
#include "schemas/schema.h"

#include <criterion/criterion.h>
#include <string.h>

static const json_t *codes_of(const char *definition)
{
    const json_t *defs = json_object_get(schema_get("answers"), "$defs");
    const json_t *properties = json_object_get(json_object_get(defs, definition), "properties");

    return json_object_get(json_object_get(properties, "code"), "enum");
}

static bool lists(const json_t *codes, const char *name)
{
    size_t i;
    json_t *code;

    json_array_foreach(codes, i, code) {
        if (strcmp(json_string_value(code), name) == 0)
            return true;
    }
    return false;
}

Test(answers, every_ending_is_listed_and_nothing_else)
{
    const json_t *codes = codes_of("turn_error");
    size_t count = 0;

#define X(code, name, detail)                                                                                \
    cr_assert(lists(codes, name), "%s is missing", name);                                                    \
    count++;
    ENDING_TABLE(X)
#undef X
    cr_assert_eq(json_array_size(codes), count);
}

Test(answers, every_problem_is_an_error_of_the_table)
{
    const json_t *codes = codes_of("problem");
    size_t i;
    json_t *code;

    cr_assert_gt(json_array_size(codes), 0);
    json_array_foreach(codes, i, code) {
        bool known = false;
#define X(id, status, name, title) known = known || strcmp(json_string_value(code), name) == 0;
        ERR_TABLE(X)
#undef X
        cr_assert(known, "%s", json_string_value(code));
    }
}
