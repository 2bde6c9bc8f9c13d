#include "rig.h"

#include "base/fs.h"
#include "schemas/schema.h"

#include <ctype.h>

static void says(const char *yaml, const char *part)
{
    const char *got = rig_load(yaml, NULL);
    if (part[0] == '\0')
        cr_assert_str_eq(got, "", "%s", yaml);
    else
        cr_assert(strstr(got, part), "%s: \"%s\" has no \"%s\"", yaml, got, part);
}

Test(config, the_defaults_alone_are_good)
{
    struct config *c = NULL;

    cr_assert_str_eq(rig_load(NULL, &c), "");
    cr_assert_str_eq(c->listen_host, "127.0.0.1");
    cr_assert_eq(c->listen_port, 8080);
    cr_assert_str_eq(c->state_file, "/var/lib/cloister/state/cloister.db");
    cr_assert_str_eq(c->run_root, "/var/lib/cloister/run");
    cr_assert_str_eq(c->workspace_root, "/var/lib/cloister/workspaces");
    cr_assert_str_eq(c->image, "cloister-worker:local");
    cr_assert(c->limits.memory_mb == 512 && c->limits.pids == 64 && c->limits.nofile == 256);
    cr_assert(c->limits.tmp_mb == 64 && c->limits.cpus == 1.0);
    cr_assert(c->limits.timeout_ms == 120000 && c->limits.grace_ms == 5000);
    cr_assert(c->queue.per_channel == 1000 && c->queue.per_key == 5000 && c->queue.total == 10000);
    cr_assert(c->result.metrics && c->result.logs && c->result.spans && c->result.logs_kb == 1024);
    cr_assert(c->model.max_tokens == 4096 && c->model.max_calls == 48);
    cr_assert_str_eq(c->model.url, "embedded:echo");
    cr_assert(!c->model.allow_http && !c->model.allow_script && !c->listen_behind_tls);
    cr_assert(!c->model.credential_file && !c->model.credential_env.data && !c->model.credential_command);
    cr_assert_eq(json_array_size(c->initial_channels), 0);
    config_free(c);
    says("", "");
}

Test(config, all_faults_come_at_once_with_their_lines)
{
    const char *got = rig_load("listen: nowhere\n"
                               "limits:\n"
                               "  pids: 7\n"
                               "  memory_mb: lots\n"
                               "\n"
                               "typo: 1\n"
                               "model:\n"
                               "  credential: {file: /a, env: B}\n"
                               "initial_channels: [web:a, Web]\n",
                               NULL);
    static const char *const want[] = {"/listen: line 1: ",
                                       "/limits/pids: line 3: must be at least 8",
                                       "/limits/memory_mb: line 4: must be of type integer",
                                       "/typo: line 6: is not known here",
                                       "/model/credential: line 8: ",
                                       "/initial_channels/1: line 9: "};
    for (size_t i = 0; i < ARRAY_LEN(want); i++)
        cr_assert(strstr(got, want[i]), "%s in %s", want[i], got);
}

Test(config, a_file_that_is_no_mapping_or_not_there)
{
    struct json_faults faults = {0};
    struct config *c = NULL;
    struct err err;

    says("- a\n", "line 1: must be a mapping");
    says("just text\n", "line 1: must be a mapping");
    says("a: 1\na: 2\n", "line 2: this key stands here already");
    cr_assert_eq(config_load("/nonexistent/x.yaml", &c, &faults, &err), -1);
    cr_assert(strstr(err.text, "/nonexistent/x.yaml"), "%s", err.text);
    cr_assert_null(c);
    json_faults_free(&faults);
}

Test(config, listen_rules)
{
    static const struct {
        const char *yaml, *part;
    } rows[] = {
        {"listen: 127.0.0.1:0", ""},
        {"listen: 127.255.0.9:65535", ""},
        {"listen: '[::1]:8080'", ""},
        {"listen: 127.0.0.1:65536", "/listen: line 1: 65536 is not a port"},
        {"listen: 127.0.0.1", "/listen: line 1: must match"},
        {"listen: localhost:80", "/listen: line 1: must match"},
        {"listen: 127.1:80", "127.1 is not an address"},
        {"listen: '[::zz]:80'", "/listen: line 1: must match"},
        {"listen: '[:]:80'", ": is not an address"},
        {"listen: 0.0.0.0:80", "0.0.0.0 is not loopback"},
        {"listen: 192.168.1.1:80", "listen_behind_tls: true"},
        {"listen: '[::]:80'", ":: is not loopback"},
        {"listen: '[::ffff:127.0.0.1]:80'", "is not loopback"},
        {"listen: 0.0.0.0:80\nlisten_behind_tls: true", ""},
        {"listen: '[::]:80'\nlisten_behind_tls: true", ""},
        {"listen_behind_tls: 'true'", "must be of type boolean"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        says(rows[i].yaml, rows[i].part);

    struct config *c = NULL;
    cr_assert_str_eq(rig_load("listen: '[::1]:81'", &c), "");
    cr_assert_str_eq(c->listen_host, "::1");
    cr_assert_eq(c->listen_port, 81);
    config_free(c);
}

Test(config, model_rules)
{
    static const struct {
        const char *yaml, *part;
    } rows[] = {
        {"model: {url: 'https://api.example.com/v1/chat/completions'}", ""},
        {"model: {url: 'http://127.0.0.1:9/v1'}", "/model/url: line 1: must be https"},
        {"model: {url: 'http://127.0.0.1:9/v1', allow_http: true}", ""},
        {"model: {url: 'ftp://x'}", "/model/url: line 1: must match"},
        {"model: {url: 'embedded:other'}", "/model/url: line 1: must match"},
        {"model: {url: 'embedded:script'}", "needs model.allow_script: true"},
        {"model: {url: 'embedded:script', allow_script: true}", ""},
        {"listen: 0.0.0.0:80\nlisten_behind_tls: true\nmodel: {url: 'embedded:script', allow_script: true}",
         "/model/url: line 3: embedded:script needs a loopback listen address"},
        {"listen: 0.0.0.0:80\nlisten_behind_tls: true\nmodel: {url: 'embedded:echo', allow_script: true}",
         ""},
        {"model: {max_tokens: 0}", "at least 1"},
        {"model: {max_tokens: 32769}", "at most 32768"},
        {"model: {max_calls: 0}", "at least 1"},
        {"model: {max_calls: 1001}", "at most 1000"},
        {"model: {time_zone: 'Europe/Berlin'}", ""},
        {"model: {time_zone: '../etc/passwd'}", "/model/time_zone: line 1: must match"},
        {"model: {name: ''}", "/model/name: line 1: must not be empty"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        says(rows[i].yaml, rows[i].part);
}

Test(config, credential_forms)
{
    struct config *c = NULL;
    struct err err;

    cr_assert_eq(secret_init(&err), 0);
    says("model: {credential: {}}", "");
    says("model: {credential: {file: relative}}", "/model/credential/file: line 1: must match");
    says("model: {credential: {command: []}}", "/model/credential/command");
    says("model: {credential: {command: [program]}}",
         "/model/credential/command/0: line 1: must be an absolute path");
    says("model: {credential: {command: /bin/cat}}", "must be of type array");
    says("model: {credential: {file: /a, command: [/b]}}", "at most 1 members");
    says("model: {credential: {other: x}}", "/model/credential/other: line 1: is not known here");
    unsetenv("CLOISTER_TEST_TOKEN");
    says("model: {credential: {env: CLOISTER_TEST_TOKEN}}",
         "/model/credential/env: line 1: the variable CLOISTER_TEST_TOKEN is not set");
    setenv("CLOISTER_TEST_TOKEN", "", 1);
    says("model: {credential: {env: CLOISTER_TEST_TOKEN}}", "is not set");
    setenv("CLOISTER_TEST_TOKEN", "sk-0123456789abcdef", 1);
    cr_assert_str_eq(rig_load("model: {credential: {env: CLOISTER_TEST_TOKEN}}", &c), "");
    cr_assert_str_eq(c->model.credential_env.data, "sk-0123456789abcdef");
    char *tree = json_dumps(c->tree, 0);
    cr_assert_not(strstr(tree, "sk-"), "the tree holds the name only");
    free(tree);
    config_free(STEAL(c));
    cr_assert_str_eq(rig_load("model: {credential: {command: [/bin/echo, one two]}}", &c), "");
    cr_assert_str_eq(c->model.credential_command[0], "/bin/echo");
    cr_assert_str_eq(c->model.credential_command[1], "one two");
    cr_assert_null(c->model.credential_command[2]);
    config_free(STEAL(c));
    cr_assert_str_eq(rig_load("model: {credential: {file: /etc/key}}", &c), "");
    cr_assert_str_eq(c->model.credential_file, "/etc/key");
    config_free(c);
}

Test(config, initial_channels_keep_the_key_rule)
{
    char yaml[700], key[301];

    says("initial_channels: [web:a, 'api:b c']", "");
    says("initial_channels: [web:a, web:a]", "/initial_channels");
    says("initial_channels: web:a", "must be of type array");
    /* 200 bytes at most: 100 characters of two bytes are too many with their kind. */
    for (int i = 0; i < 100; i++)
        memcpy(key + 2 * i, "\xC3\xA9", 3);
    snprintf(yaml, sizeof yaml, "initial_channels:\n- 'web:%s'\n", key);
    says(yaml, "/initial_channels/0: line 2: a channel key has at most 200 bytes");
    key[196] = '\0';
    snprintf(yaml, sizeof yaml, "initial_channels:\n- 'web:%s'\n", key);
    says(yaml, "");
}

/* Another valid value for a key, as text for the environment. */
static const char *other_value(const char *pointer, const json_t *schema)
{
    static char text[64];
    const char *type = json_str(schema, "type");

    if (strcmp(type, "boolean") == 0)
        return "true";
    if (strcmp(type, "integer") == 0 || strcmp(type, "number") == 0) {
        snprintf(text, sizeof text, "%lld",
                 (long long)json_number_value(json_object_get(schema, "default")) + 1);
        return text;
    }
    if (strcmp(pointer, "/listen") == 0)
        return "127.0.0.1:9999";
    if (strcmp(pointer, "/model/url") == 0)
        return "https://model.example/v1";
    return json_str(schema, "pattern") && strcmp(json_str(schema, "pattern"), "^/") == 0 ? "/other/place"
                                                                                         : "other";
}

static json_t *at_pointer(json_t *tree, const char *pointer)
{
    char copy[128], *rest = copy + 1, *word;

    snprintf(copy, sizeof copy, "%s", pointer);
    while (tree && (word = strsep(&rest, "/")))
        tree = json_object_get(tree, word);
    return tree;
}

/* The variable's name is the key's: /limits/memory_mb is CLOISTER_LIMITS_MEMORY_MB. */
static void assert_derived(const char *variable, const char *pointer)
{
    char want[160] = "CLOISTER";
    size_t n = strlen(want);

    for (size_t i = 0; pointer[i]; i++)
        want[n++] = pointer[i] == '/' ? '_' : (char)toupper((unsigned char)pointer[i]);
    want[n] = '\0';
    cr_assert_str_eq(variable, want);
}

static void check_override(const json_t *schema, const char *pointer, const char *variable)
{
    const char *text = other_value(pointer, schema);
    bool is_text = strcmp(json_str(schema, "type"), "string") == 0;
    struct config *c = NULL;
    char want[256];

    assert_derived(variable, pointer);
    setenv(variable, text, 1);
    cr_assert_str_eq(rig_load("listen: 127.0.0.1:1\n", &c), "", "%s=%s", variable, text);
    json_t *got = at_pointer(c->tree, pointer);
    json_t *should = is_text ? json_string(text) : json_loads(text, JSON_DECODE_ANY, NULL);
    cr_assert(json_equal(got, should), "%s=%s", variable, text);
    json_decref(should);
    config_free(c);
    if (!is_text) { /* a bad value is told by the variable's name */
        static const char *const bad[] = {"many", ""};
        snprintf(want, sizeof want, "%s: %s: must be of type", pointer, variable);
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
            setenv(variable, bad[i], 1);
            const char *says_now = rig_load("", NULL);
            cr_assert(strstr(says_now, want), "%s=%s: %s", variable, bad[i], says_now);
        }
    }
    unsetenv(variable);
}

static unsigned check_overrides(const json_t *schema, const char *base)
{
    unsigned count = 0;
    const char *key;
    json_t *sub;

    json_object_foreach(json_object_get(schema, "properties"), key, sub) {
        char pointer[128];
        snprintf(pointer, sizeof pointer, "%s/%s", base, key);
        count += check_overrides(sub, pointer);
        if (!json_str(sub, "x-env"))
            continue;
        check_override(sub, pointer, json_str(sub, "x-env"));
        count++;
    }
    return count;
}

Test(config, every_key_has_its_variable_and_it_wins, .timeout = 60)
{
    const json_t *schema = schema_get("config");

    cr_assert_not_null(schema);
    cr_assert_geq(check_overrides(schema, ""), 28);
}

/* A file of the source tree. */
static const char *source(const char *name)
{
    static char path[512];
    const char *tests = strstr(__FILE__, "tests/unit/config/");

    snprintf(path, sizeof path, "%.*s%s", (int)(tests - __FILE__), __FILE__, name);
    return path;
}

/* Every key of the schema stands in the file, at least as a comment. */
static void assert_named(const json_t *schema, const char *text)
{
    const char *key;
    json_t *sub;

    json_object_foreach(json_object_get(schema, "properties"), key, sub) {
        char line[64];
        snprintf(line, sizeof line, "%s:", key);
        cr_assert(strstr(text, line), "deploy/cloister.yaml has no %s", key);
        if (json_str(sub, "x-env"))
            cr_assert(strstr(text, json_str(sub, "x-env")), "deploy/cloister.yaml has no %s",
                      json_str(sub, "x-env"));
        assert_named(sub, text);
    }
}

Test(reference, deploy_cloister_yaml_holds_every_key_with_its_default)
{
    struct config *reference = NULL, *defaults = NULL;
    struct json_faults faults = {0};
    struct buf text = BUF_INIT(1 << 20);
    struct err err;

    cr_assert_eq(config_load(source("deploy/cloister.yaml"), &reference, &faults, &err), 0, "%s", err.text);
    cr_assert_eq(config_load(NULL, &defaults, &faults, &err), 0, "%s", err.text);
    char *got = json_dumps(reference->tree, JSON_SORT_KEYS | JSON_INDENT(1));
    char *want = json_dumps(defaults->tree, JSON_SORT_KEYS | JSON_INDENT(1));
    cr_assert_str_eq(got, want);
    cr_assert_eq(fs_read(source("deploy/cloister.yaml"), &text, &err), 0, "%s", err.text);
    assert_named(schema_get("config"), text.data);
    free(got);
    free(want);
    config_free(reference);
    config_free(defaults);
    buf_free(&text);
}
