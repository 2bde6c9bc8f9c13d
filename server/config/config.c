#include "config/config.h"

#include "base/fs.h"
#include "base/limits.h"
#include "config/yaml.h"
#include "schemas/schema.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

struct loading {
    json_t *tree, *lines, *env; /* env: pointer → variable that set it */
};

void config_locate(const struct config *c, struct json_faults *faults, size_t first)
{
    for (size_t i = first; i < json_array_size(faults->list); i++) {
        json_t *fault = json_array_get(faults->list, i);
        const char *pointer = json_str(fault, "pointer"), *detail = json_str(fault, "detail");
        char where[128] = "", at[4096];
        snprintf(at, sizeof at, "%s", pointer);
        const char *variable = json_str(c->env, at);
        json_t *line = NULL;
        /* what is missing has the line of what it is missing from */
        while (!(line = json_object_get(c->lines, at)) && at[0])
            *strrchr(at, '/') = '\0';
        if (variable)
            snprintf(where, sizeof where, "%s: ", variable);
        else if (line)
            snprintf(where, sizeof where, "line %lld: ", (long long)json_integer_value(line));
        json_object_set_new(fault, "detail", json_sprintf("%s%s", where, detail));
    }
}

static json_t *env_value(const json_t *schema, const char *text)
{
    const char *type = json_str(schema, "type");

    if (type && strcmp(type, "string") == 0)
        return json_string(text);
    return yaml_scalar(text, strlen(text));
}

/* Walks the schema's properties; where x-env names a variable that is set, it replaces the value. */
static int apply_env(struct loading *l, const json_t *schema, json_t *object, const char *base,
                     struct err *err)
{
    const char *key;
    json_t *sub;

    json_object_foreach(json_object_get(schema, "properties"), key, sub) {
        const char *variable = json_str(sub, "x-env");
        const char *text = variable ? getenv(variable) : NULL;
        char pointer[256];
        snprintf(pointer, sizeof pointer, "%s/%s", base, key);
        if (text && (json_object_set_new(object, key, env_value(sub, text)) < 0 ||
                     json_object_set_new(l->env, pointer, json_string(variable)) < 0))
            return err_set(err, ERR_CONFIG, "%s is not UTF-8", variable);
        if (!json_object_get(sub, "properties"))
            continue;
        json_t *inner = json_object_get(object, key);
        if (!inner && json_object_set_new(object, key, inner = json_object()) < 0)
            return err_no_memory(err);
        if (json_is_object(inner) && apply_env(l, sub, inner, pointer, err) < 0)
            return -1;
    }
    return 0;
}

static const char *string_at(const json_t *tree, const char *section, const char *key)
{
    return json_str(section ? json_object_get(tree, section) : tree, key);
}

static unsigned number_at(const json_t *tree, const char *section, const char *key)
{
    return (unsigned)json_integer_value(json_object_get(json_object_get(tree, section), key));
}

static bool flag_at(const json_t *tree, const char *section, const char *key)
{
    return json_is_true(json_object_get(section ? json_object_get(tree, section) : tree, key));
}

static bool is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;

    if (inet_pton(AF_INET, host, &v4) == 1)
        return (ntohl(v4.s_addr) >> 24) == 127;
    return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

/* "127.0.0.1:8080" or "[::1]:8080"; the schema has vouched for the form. */
static int bind_listen(struct config *c, struct json_faults *faults, struct err *err)
{
    const char *text = json_str(c->tree, "listen"), *colon = strrchr(text, ':');
    unsigned char address[16];
    bool v6 = text[0] == '[';

    c->host = strndup(text + v6, (size_t)(colon - text) - 2 * v6);
    if (!c->host)
        return err_no_memory(err);
    c->listen_host = c->host;
    unsigned long port = strtoul(colon + 1, NULL, 10);
    if (inet_pton(v6 ? AF_INET6 : AF_INET, c->host, address) != 1)
        json_fault(faults, "/listen", "%s is not an address", c->host);
    else if (!is_loopback(c->host) && !c->listen_behind_tls)
        json_fault(
            faults, "/listen",
            "%s is not loopback: put a proxy with TLS in front and say so with listen_behind_tls: true",
            c->host);
    if (port > 65535)
        json_fault(faults, "/listen", "%lu is not a port", port);
    c->listen_port = (unsigned)port;
    return 0;
}

static int bind_credential(struct config *c, struct json_faults *faults, struct err *err)
{
    json_t *credential = json_object_get(json_object_get(c->tree, "model"), "credential"), *word;
    json_t *command = json_object_get(credential, "command");
    const char *variable = json_str(credential, "env");
    size_t i;

    c->model.credential_file = json_str(credential, "file");
    if (variable) {
        const char *value = getenv(variable);
        if (!value || !*value)
            json_fault(faults, "/model/credential/env", "the variable %s is not set", variable);
        else if (secret_set(&c->model.credential_env, value, strlen(value), err) < 0)
            return -1;
    }
    if (!command)
        return 0;
    c->model.credential_command = calloc(json_array_size(command) + 1, sizeof(char *));
    if (!c->model.credential_command)
        return err_no_memory(err);
    json_array_foreach(command, i, word) {
        if (!(c->model.credential_command[i] = strdup(json_string_value(word))))
            return err_no_memory(err);
    }
    const char *program = c->model.credential_command[0];
    if (!program || program[0] != '/')
        json_fault(faults, "/model/credential/command/0", "must be an absolute path");
    return 0;
}

static void bind_model(struct config *c, struct json_faults *faults)
{
    c->model.url = string_at(c->tree, "model", "url");
    c->model.name = string_at(c->tree, "model", "name");
    c->model.prompt = string_at(c->tree, "model", "prompt");
    c->model.time_zone = string_at(c->tree, "model", "time_zone");
    c->model.max_tokens = number_at(c->tree, "model", "max_tokens");
    c->model.max_calls = number_at(c->tree, "model", "max_calls");
    c->model.allow_http = flag_at(c->tree, "model", "allow_http");
    c->model.allow_script = flag_at(c->tree, "model", "allow_script");
    if (strncmp(c->model.url, "http://", 7) == 0 && !c->model.allow_http)
        json_fault(faults, "/model/url", "must be https; http is for tests, with model.allow_http: true");
    if (strcmp(c->model.url, "embedded:script") != 0)
        return;
    if (!c->model.allow_script)
        json_fault(faults, "/model/url",
                   "embedded:script lets callers steer the model: it needs model.allow_script: true");
    if (!is_loopback(c->listen_host))
        json_fault(faults, "/model/url", "embedded:script needs a loopback listen address");
}

static void bind_figures(struct config *c)
{
    c->limits.memory_mb = number_at(c->tree, "limits", "memory_mb");
    c->limits.pids = number_at(c->tree, "limits", "pids");
    c->limits.nofile = number_at(c->tree, "limits", "nofile");
    c->limits.tmp_mb = number_at(c->tree, "limits", "tmp_mb");
    c->limits.cpus = json_number_value(json_object_get(json_object_get(c->tree, "limits"), "cpus"));
    c->limits.timeout_ms = (int)number_at(c->tree, "limits", "timeout_ms");
    c->limits.grace_ms = (int)number_at(c->tree, "limits", "grace_ms");
    c->pool_size = number_at(c->tree, "pool", "size");
    c->drain_ms = (int)number_at(c->tree, "pool", "drain_ms");
    c->queue.per_channel = number_at(c->tree, "queue", "per_channel");
    c->queue.per_key = number_at(c->tree, "queue", "per_key");
    c->queue.total = number_at(c->tree, "queue", "total");
    c->queue.wait_ms = json_integer_value(json_object_get(json_object_get(c->tree, "queue"), "wait_ms"));
    c->retention.turns_days = number_at(c->tree, "retention", "turns_days");
    c->retention.turns_max = number_at(c->tree, "retention", "turns_max");
    c->retention.events_days = number_at(c->tree, "retention", "events_days");
    c->result.metrics = flag_at(c->tree, "result", "metrics");
    c->result.logs = flag_at(c->tree, "result", "logs");
    c->result.spans = flag_at(c->tree, "result", "spans");
    c->result.logs_kb = number_at(c->tree, "result", "logs_kb");
}

static int bind_all(struct config *c, struct json_faults *faults, struct err *err)
{
    json_t *key;
    size_t i;

    c->listen_behind_tls = flag_at(c->tree, NULL, "listen_behind_tls");
    if (bind_listen(c, faults, err) < 0)
        return -1;
    c->state_file = string_at(c->tree, NULL, "state_file");
    c->run_root = string_at(c->tree, NULL, "run_root");
    c->workspace_root = string_at(c->tree, NULL, "workspace_root");
    c->engine_socket = string_at(c->tree, NULL, "engine_socket");
    c->image = string_at(c->tree, NULL, "image");
    bind_figures(c);
    bind_model(c, faults);
    if (bind_credential(c, faults, err) < 0)
        return -1;
    c->initial_channels = json_object_get(c->tree, "initial_channels");
    json_array_foreach(c->initial_channels, i, key)
        if (json_string_length(key) > LIMIT_CHANNEL_KEY) {
            char pointer[64];
            snprintf(pointer, sizeof pointer, "/initial_channels/%zu", i);
            json_fault(faults, pointer, "a channel key has at most %d bytes", LIMIT_CHANNEL_KEY);
        }
    return 0;
}

static int read_tree(const char *path, struct loading *l, struct err *err)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT(LIMIT_CONFIG_FILE);

    l->env = json_object();
    if (!path) {
        l->tree = json_object();
        l->lines = json_object();
    } else if (fs_read(path, &text, err) < 0) {
        return -1;
    } else if (yaml_parse(text.data ? text.data : "", text.len, &l->tree, &l->lines, err) < 0) {
        return err_wrap(err, "%s", path);
    }
    if (!l->env || !l->tree || !l->lines)
        return err_no_memory(err);
    if (!json_is_object(l->tree))
        return err_set(err, ERR_CONFIG, "%s: line 1: must be a mapping of keys", path);
    if (apply_env(l, schema_get("config"), l->tree, "", err) < 0)
        return -1;
    return schema_defaults("config", l->tree, err);
}

int config_load(const char *path, struct config **ret, struct json_faults *faults, struct err *err)
{
    struct loading l = {0};
    CLEANUP(config_free_p) struct config *c = calloc(1, sizeof *c);

    if (!c)
        return err_no_memory(err);
    int rc = read_tree(path, &l, err);
    c->tree = l.tree;
    c->lines = l.lines;
    c->env = l.env;
    if (rc == 0 && schema_check("config", c->tree, "", faults) == 0)
        rc = bind_all(c, faults, err);
    if (rc == 0 && faults->total > 0) {
        config_locate(c, faults, 0);
        rc = err_set(err, ERR_CONFIG, "%s: %zu faults", path ? path : "environment", faults->total);
    }
    if (rc < 0)
        return -1;
    *ret = STEAL(c);
    return 0;
}

void config_free(struct config *c)
{
    if (!c)
        return;
    for (char **word = c->model.credential_command; word && *word; word++)
        free(*word);
    free(c->model.credential_command);
    secret_free(&c->model.credential_env);
    free(c->host);
    json_decref(c->tree);
    json_decref(c->lines);
    json_decref(c->env);
    free(c);
}
