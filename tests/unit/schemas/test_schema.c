#include "schemas/embedded.h"
#include "schemas/store.h"

#include <criterion/criterion.h>
#include <string.h>

static json_t *parse(const char *text)
{
    struct err err;
    json_t *v = NULL;
    cr_assert_eq(json_parse(text, strlen(text), &v, &err), 0, "%s", err.text);
    return v;
}

/* All pointers and details of a check, one per line. */
static char *faults_of(const char *schema, const char *text)
{
    static char out[8192];
    struct json_faults faults = {0};
    json_t *value = parse(text), *one;
    size_t i;

    out[0] = '\0';
    int rc = schema_check(schema, value, "", &faults);
    cr_assert_eq(rc == 0, faults.total == 0);
    json_array_foreach(faults.list, i, one)
        snprintf(out + strlen(out), sizeof out - strlen(out), "%s: %s\n", json_str(one, "pointer"),
                 json_str(one, "detail"));
    json_faults_free(&faults);
    json_decref(value);
    return out;
}

Test(schema, every_file_loads_and_every_reference_leads_somewhere)
{
    struct err err;
    cr_assert_eq(schema_load(&err), 0, "%s", err.text);
    for (const struct embedded_file *f = embedded_schemas; f->name; f++)
        cr_assert_not_null(schema_get(f->name), "%s", f->name);
    cr_assert_null(schema_get("nonesuch"));
}

#define GOOD "{\"channel\":\"web:lobby\",\"speaker\":{\"id\":\"1\",\"name\":\"Ann\"},\"text\":\"hi\"}"

Test(schema, a_good_turn_has_no_fault)
{
    cr_assert_str_eq(faults_of("turn_request", GOOD), "");
}

Test(schema, all_faults_come_at_once_with_pointers)
{
    const char *got = faults_of(
        "turn_request", "{\"channel\":\"Web\",\"speaker\":{\"id\":\"\",\"name\":7},\"text\":\"\",\"x/y\":1}");
    cr_assert(strstr(got, "/channel: must match"), "%s", got);
    cr_assert(strstr(got, "/speaker/id: must not be empty"), "%s", got);
    cr_assert(strstr(got, "/speaker/name: must be of type string"), "%s", got);
    cr_assert(strstr(got, "/text: must not be empty"), "%s", got);
    cr_assert(strstr(got, "/x~1y: is not known here"), "%s", got);
}

Test(schema, missing_members_are_named)
{
    cr_assert_str_eq(
        faults_of("turn_request", "{}"),
        ": channel is missing\n: speaker is missing\n: must have exactly one of text and messages\n");
}

Test(schema, origin_needs_all_five)
{
    const char *got = faults_of(
        "turn_request", "{\"channel\":\"a:b\",\"speaker\":{\"id\":\"1\",\"name\":\"A\"},\"text\":\"t\","
                        "\"origin\":{\"author_is_bot\":false,\"integration\":false}}");
    cr_assert(strstr(got, "/origin: is_direct is missing"), "%s", got);
    cr_assert(strstr(got, "/origin: replies_to_bot is missing"), "%s", got);
}

Test(schema, lengths_are_code_points)
{
    struct json_faults faults = {0};
    json_t *v = parse(GOOD);
    char *text = malloc(32001 * 2 + 1);

    for (int i = 0; i < 32001; i++)
        memcpy(text + 2 * i, "\xC3\xA9", 2);
    text[32000 * 2] = '\0';
    json_object_set_new(v, "text", json_string(text));
    cr_assert_eq(schema_check("turn_request", v, "", &faults), 0);
    memcpy(text + 2 * 32000, "\xC3\xA9", 3);
    json_object_set_new(v, "text", json_string(text));
    cr_assert_eq(schema_check("turn_request", v, "", &faults), -1);
    json_faults_free(&faults);
    json_decref(v);
    free(text);
}

Test(schema, control_characters_are_refused_where_said)
{
    const char *got = faults_of(
        "turn_request",
        "{\"channel\":\"a:b\\u0007\",\"speaker\":{\"id\":\"1\\u0085\",\"name\":\"A\"},\"text\":\"t\\n\"}");
    cr_assert(strstr(got, "/channel: must not hold control"), "%s", got);
    cr_assert(strstr(got, "/speaker/id: must not hold control"), "%s", got);
    cr_assert_not(strstr(got, "/text"), "%s", got);
}

Test(schema, metadata_bounds)
{
    const char *got = faults_of(
        "turn_request", "{\"channel\":\"a:b\",\"speaker\":{\"id\":\"1\",\"name\":\"A\"},\"text\":\"t\","
                        "\"metadata\":{\"k\":1,\"\":\"v\"}}");
    cr_assert(strstr(got, "/metadata/k: must be of type string"), "%s", got);
    cr_assert(strstr(got, "/metadata/: must not be empty"), "%s", got);
}

Test(schema, defaults_fill_the_whole_configuration)
{
    struct err err;
    struct json_faults faults = {0};
    json_t *c = parse("{\"limits\":{\"pids\":9}}");

    cr_assert_eq(schema_defaults("config", c, &err), 0);
    cr_assert_eq(json_integer_value(json_object_get(json_object_get(c, "limits"), "pids")), 9);
    cr_assert_eq(json_integer_value(json_object_get(json_object_get(c, "limits"), "memory_mb")), 512);
    cr_assert_str_eq(json_str(json_object_get(c, "model"), "url"), "embedded:echo");
    cr_assert_eq(schema_check("config", c, "", &faults), 0);
    json_decref(c);
}

Test(schema, configuration_ranges)
{
    const char *got = faults_of(
        "config",
        "{\"limits\":{\"memory_mb\":63,\"cpus\":0.005,\"pids\":7,\"timeout_ms\":600001},\"image\":\"-x\","
        "\"model\":{\"url\":\"ftp://x\",\"credential\":{\"file\":\"/a\",\"env\":\"B\"}}}");
    cr_assert(strstr(got, "/limits/memory_mb: must be at least 64"), "%s", got);
    cr_assert(strstr(got, "/limits/cpus: must be at least 0.01"), "%s", got);
    cr_assert(strstr(got, "/limits/pids: must be at least 8"), "%s", got);
    cr_assert(strstr(got, "/limits/timeout_ms: must be at most 600000"), "%s", got);
    cr_assert(strstr(got, "/image: must match"), "%s", got);
    cr_assert(strstr(got, "/model/url: must match"), "%s", got);
    cr_assert(strstr(got, "/model/credential: must have at most 1 members, has 2"), "%s", got);
}

Test(schema, reply_of_the_worker)
{
    cr_assert_str_eq(faults_of("worker_reply", "{\"ok\":true,\"text\":\"x\",\"data\":[1]}"), "");
    cr_assert(strstr(faults_of("worker_reply", "{\"ok\":true,\"text\":\"x\",\"more\":1}"),
                     "/more: is not known here"));
    cr_assert(strstr(faults_of("worker_reply", "{\"ok\":1,\"text\":null}"), "/ok: must be of type boolean"));
    cr_assert(strstr(faults_of("worker_reply", "[]"), "must be of type object"));
}

Test(schema, a_place_that_cannot_be_named_is_told_by_its_ancestor)
{
    char name[5001], text[12000];

    memset(name, 'k', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    snprintf(text, sizeof text, "{\"metadata\":{\"%s\":1},\"%s\":2}", name, name);
    const char *got = faults_of("turn_request", text);
    cr_assert(strstr(got, "/metadata: the place lies too deep to be named\n"), "%s", got);
    cr_assert(strstr(got, "\n: a member with a very long name is not known here\n"), "%s", got);
}
