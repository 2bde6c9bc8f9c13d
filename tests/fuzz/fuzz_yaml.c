/* The configuration: YAML as values, where each stands, and what the whole loader makes of the file. What is
 * read and written as JSON, which is YAML as well, reads the same. */
#include "support/fuzz.h"

#include "base/limits.h"
#include "base/secret.h"
#include "config/config.h"
#include "config/yaml.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static char path[64];
static int file = -1;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct err err = {0};

    (void)argc;
    (void)argv;
    PROPERTY(secret_init(&err) == 0, "%s", err.text);
    file = memfd_create("cloister.yaml", MFD_CLOEXEC);
    PROPERTY(file >= 0, "no file in memory");
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return 0;
}

/* Each value has its line, and no line is beyond the end. */
static void check_lines(const json_t *value, const json_t *lines, struct buf *pointer, json_int_t last)
{
    const json_t *line = json_object_get(lines, pointer->data ? pointer->data : "");
    const char *key;
    json_t *member;
    size_t i, len = pointer->len;
    struct err err;

    PROPERTY(json_is_integer(line) && json_integer_value(line) >= 1 && json_integer_value(line) <= last,
             "the line of %s", pointer->data);
    json_object_foreach((json_t *)(uintptr_t)value, key, member) {
        PROPERTY(json_pointer_add(pointer, key, &err) == 0, "%s", err.text);
        check_lines(member, lines, pointer, last);
        pointer->data[pointer->len = len] = '\0';
    }
    json_array_foreach(value, i, member) {
        char token[24];
        snprintf(token, sizeof token, "%zu", i);
        PROPERTY(json_pointer_add(pointer, token, &err) == 0, "%s", err.text);
        check_lines(member, lines, pointer, last);
        pointer->data[pointer->len = len] = '\0';
    }
}

/* Characters that YAML cannot hold raw, and names too long for a key, may keep it from being read, and its
 * three line breaks beyond ASCII are folded; nothing else may change. */
static void check_as_json(const json_t *value)
{
    CLEANUP(free_str) char *text = NULL;
    CLEANUP(json_free) json_t *again = NULL;
    CLEANUP(json_free) json_t *lines = NULL;
    CLEANUP(json_free) json_t *parsed = NULL;
    struct err err = {0};

    PROPERTY(json_text(value, &text, &err) == 0, "%s", err.text);
    PROPERTY(json_parse(text, strlen(text), &parsed, &err) == 0, "more than JSON can hold: %s: %s", err.text,
             text);
    bool breaks = strstr(text, "\xC2\x85") || strstr(text, "\xE2\x80\xA8") || strstr(text, "\xE2\x80\xA9");
    if (!breaks && yaml_parse(text, strlen(text), &again, &lines, &err) == 0)
        PROPERTY(json_equal(value, again), "read as something else: %s", text);
}

static void check_config(const struct config *c)
{
    PROPERTY(c->listen_host && c->listen_port <= 65535 && c->state_file && c->run_root && c->workspace_root &&
                 c->engine_socket && c->image && *c->image && *c->image != '-',
             "an address or a path");
    PROPERTY(c->limits.memory_mb >= 64 && c->limits.pids >= 8 && c->limits.cpus > 0 &&
                 c->limits.nofile >= 16 && c->limits.tmp_mb >= 1 && c->limits.timeout_ms >= 1000 &&
                 c->limits.timeout_ms <= 600000 && c->limits.grace_ms >= 0,
             "limits");
    PROPERTY(c->pool_size >= 1 && c->drain_ms >= 0 && c->queue.total >= 1 && c->queue.per_key >= 1 &&
                 c->queue.per_channel >= 1,
             "pool or queue");
    PROPERTY(c->model.url && c->model.name && *c->model.name && c->model.prompt && c->model.time_zone &&
                 c->model.max_tokens >= 1 && c->model.max_tokens <= 32768 && c->model.max_calls >= 1 &&
                 c->model.max_calls <= 1000,
             "model");
    PROPERTY(strncmp(c->model.url, "http://", 7) != 0 || c->model.allow_http, "http without allow_http");
    PROPERTY(strcmp(c->model.url, "embedded:script") != 0 || c->model.allow_script,
             "a script without allow_script");
    PROPERTY(!c->model.credential_command || c->model.credential_command[0][0] == '/', "a relative command");
}

static void check_load(const uint8_t *data, size_t size, bool parsed)
{
    CLEANUP(json_faults_free) struct json_faults faults = {0};
    struct config *c = NULL;
    struct err err = {0};

    PROPERTY(ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == (ssize_t)size, "the file");
    int rc = config_load(path, &c, &faults, &err);
    if (rc == 0) {
        PROPERTY(parsed && faults.total == 0, "%zu faults and loaded", faults.total);
        check_config(c);
        config_free(c);
        return;
    }
    PROPERTY(!c, "an output beside an error");
    fuzz_check_err(&err);
    PROPERTY(err.code == ERR_CONFIG, "%s: %s", err_name(err.code), err.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(free_str) char *text = fuzz_text(data, size);
    CLEANUP(json_free) json_t *value = NULL;
    CLEANUP(json_free) json_t *lines = NULL;
    CLEANUP(buf_free) struct buf pointer = BUF_INIT(1 << 20);
    struct err err = {0};
    json_int_t last =
        2; /* libyaml lets a value that is left out at the very end stand on a line of its own */

    int rc = yaml_parse(text, size, &value, &lines, &err);
    for (size_t i = 0; i < size; i++)
        last +=
            text[i] == '\n' || text[i] == '\r' || (unsigned char)text[i] >= 0x80; /* NEL, LS and PS as well */
    if (rc == 0) {
        if (json_object_size(value) > 0 || json_object_size(lines) > 0)
            check_lines(value, lines, &pointer, last);
        check_as_json(value);
    } else {
        fuzz_check_err(&err);
        PROPERTY(err.code == ERR_CONFIG && strncmp(err.text, "line ", 5) == 0, "%s", err.text);
    }
    check_load(data, size, rc == 0);
    return 0;
}
