#include "config/yaml.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* The document as JSON text, or the error. */
static const char *read_yaml(const char *text)
{
    static char out[4096];
    json_t *value = NULL, *lines = NULL;
    struct err err = {0};

    if (yaml_parse(text, strlen(text), &value, &lines, &err) < 0) {
        cr_assert_eq(err.code, ERR_CONFIG, "%s", err.text);
        snprintf(out, sizeof out, "%s", err.text);
        return out;
    }
    char *json = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    snprintf(out, sizeof out, "%s", json);
    free(json);
    json_decref(value);
    json_decref(lines);
    return out;
}

Test(yaml, core_schema)
{
    static const struct {
        const char *yaml, *json;
    } rows[] = {
        {"", "{}"},
        {"# only a comment\n", "{}"},
        {"---\n", "null"},
        {"a: 1", "{\"a\":1}"},
        {"a: -7\nb: +7\nc: 007", "{\"a\":-7,\"b\":7,\"c\":7}"},
        {"a: 1.5\nb: 1e3\nc: .5", "{\"a\":1.5,\"b\":1000.0,\"c\":0.5}"},
        {"a: true\nb: False\nc: TRUE\nd: yes\ne: on",
         "{\"a\":true,\"b\":false,\"c\":true,\"d\":\"yes\",\"e\":\"on\"}"},
        {"a:\nb: ~\nc: null\nd: Null\ne: nul", "{\"a\":null,\"b\":null,\"c\":null,\"d\":null,\"e\":\"nul\"}"},
        {"a: '1'\nb: \"true\"\nc: ''", "{\"a\":\"1\",\"b\":\"true\",\"c\":\"\"}"},
        {"a: 1.2.3\nb: 0x10\nc: 1_000\nd: .inf\ne: .\nf: '-'",
         "{\"a\":\"1.2.3\",\"b\":\"0x10\",\"c\":\"1_000\",\"d\":\".inf\",\"e\":\".\",\"f\":\"-\"}"},
        {"a: 9223372036854775807", "{\"a\":9223372036854775807}"},
        {"a: 127.0.0.1:8080", "{\"a\":\"127.0.0.1:8080\"}"},
        {"a: [1, two, {b: 3}]", "{\"a\":[1,\"two\",{\"b\":3}]}"},
        {"a:\n  - x\n  - - y\n", "{\"a\":[\"x\",[\"y\"]]}"},
        {"a: |\n  one\n  two\nb: >\n  one\n  two\n", "{\"a\":\"one\\ntwo\\n\",\"b\":\"one two\\n\"}"},
        {"a: \"x\\ty \\u00e9\"", "{\"a\":\"x\\ty \xC3\xA9\"}"},
        {"{a: 1}", "{\"a\":1}"},
        {"x", "\"x\""},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        cr_assert_str_eq(read_yaml(rows[i].yaml), rows[i].json, "row %zu", i);
}

Test(yaml, refusals_have_their_line)
{
    static const struct {
        const char *yaml, *start, *part;
    } rows[] = {
        {"a: 1\nb: 2\na: 3\n", "line 3: ", "stands here already"},
        {"a:\n  b: 1\n  b: 2\n", "line 3: ", "stands here already"},
        {"a: &x 1\n", "line 1: ", "anchors"},
        {"a: &x {b: 1}\n", "line 1: ", "anchors"},
        {"a: &x [1]\n", "line 1: ", "anchors"},
        {"&x a: 1\n", "line 1: ", "plain word"},
        {"a: 1\nb: *x\n", "line 2: ", ""},
        {"a: &x 1\nb: *x\n", "line 1: ", "anchors"},
        {"<<: *x\n", "line 1: ", ""},
        {"*x : 1\n", "line 1: ", ""},
        {"a: !!str 1\n", "line 1: ", "tags"},
        {"a: !!int '1'\n", "line 1: ", "tags"},
        {"a: 1\nb: !!map {c: 1}\n", "line 2: ", "tags"},
        {"a: !foo {c: 1}\n", "line 1: ", "tags"},
        {"a: !!seq [1]\n", "line 1: ", "tags"},
        {"!!str a: 1\n", "line 1: ", "plain word"},
        {"? {a: 1}\n: 2\n", "line 1: ", "plain word"},
        {"? [a]\n: 2\n", "line 1: ", "plain word"},
        {"a: 1\n---\nb: 2\n", "line 2: ", "second document"},
        {"a: 1\n\tb: 2\n", "line 2: ", ""},
        {"a: [1, 2\n", "line ", ""},
        {"a: 'open\n", "line ", ""},
        {"a: \"x\\0y\"\n", "line 1: ", "NUL"},
        {"\"a\\0b\": 1\n", "line 1: ", "plain word"},
        {"a: \xFF\n", "line 1: ", ""},
        {"a: \x07\n", "line 1: ", ""},
        {"a: 1\nb\n", "line ", ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *why = read_yaml(rows[i].yaml);
        cr_assert_eq(strncmp(why, rows[i].start, strlen(rows[i].start)), 0, "row %zu: %s", i, why);
        cr_assert(strstr(why, rows[i].part), "row %zu: %s", i, why);
    }
}

Test(yaml, nesting_is_bounded)
{
    char text[400];

    memset(text, '[', 200);
    memset(text + 200, ']', 200);
    text[399] = '\0';
    cr_assert(strstr(read_yaml(text), "too deep"));
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    text[128] = '\0';
    cr_assert_eq(read_yaml(text)[0], '[', "64 levels");
}

Test(yaml, every_value_has_its_line)
{
    static const char text[] = "# head\nlisten: x\n\nlimits:\n  pids: 9\nlist:\n- a\n- b: {\"c/d\": 1}\n";
    json_t *value = NULL, *lines = NULL;
    struct err err;
    static const struct {
        const char *pointer;
        int line;
    } rows[] = {{"", 2},        {"/listen", 2},       {"/limits", 5}, {"/limits/pids", 5},
                {"/list/0", 7}, {"/list/1/b/c~1d", 8}};

    cr_assert_eq(yaml_parse(text, strlen(text), &value, &lines, &err), 0, "%s", err.text);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        cr_assert_eq(json_integer_value(json_object_get(lines, rows[i].pointer)), rows[i].line, "%s",
                     rows[i].pointer);
    json_decref(value);
    json_decref(lines);
}
