/* config/config.h: the operator's configuration. schemas/config.json is the one table of keys, ranges,
 * defaults, environment variables and descriptions; deploy/cloister.yaml is the same for people. Immutable
 * once loaded. */
#pragma once

#include "base/json.h"
#include "base/secret.h"

#include <stdbool.h>

struct config {
    json_t *tree; /* everything below points into it */

    const char *listen_host; /* "127.0.0.1" or "::1", no brackets */
    unsigned listen_port;    /* 0: any free one */
    bool listen_behind_tls;
    const char *state_file, *run_root, *workspace_root, *engine_socket, *image;
    struct {
        unsigned memory_mb, pids, nofile, tmp_mb;
        double cpus;
        int timeout_ms, grace_ms;
    } limits;
    unsigned pool_size;
    int drain_ms;
    struct {
        unsigned per_channel, per_key, total;
        int64_t wait_ms;
    } queue;
    struct {
        unsigned turns_days, turns_max, events_days;
    } retention;
    struct {
        bool metrics, logs, spans;
        unsigned logs_kb; /* of stderr */
    } result;
    struct {
        const char *url, *name, *prompt, *time_zone;
        const char *credential_file;  /* NULL: none */
        struct secret credential_env; /* data NULL: none */
        char **credential_command;    /* NULL-terminated argv; NULL: none */
        unsigned max_tokens, max_calls;
        bool allow_http, allow_script;
    } model;
    json_t *initial_channels; /* array of strings */
    char *host;               /* storage of listen_host */
    json_t *lines, *env;      /* pointer → line of the file, variable that set it: for config_locate */
};

/* Reads the file (path NULL: defaults and environment only), puts the environment's overrides over it, checks
 * all of it. On -1 the faults list what is wrong, all at once; each detail starts with "line N: " or the
 * variable's name where that is known. err->code is ERR_CONFIG, or what kept the file from being read. Main
 * thread, before any other: it reads the environment. */
MUST_USE int config_load(const char *path, struct config **ret, struct json_faults *faults, struct err *err);
void config_free(struct config *c); /* accepts NULL */
/* Puts "line N: ", or the variable's name, in front of the details of the faults from number `first` on. */
void config_locate(const struct config *c, struct json_faults *faults, size_t first);
DEFINE_CLEANUP(struct config *, config_free)
