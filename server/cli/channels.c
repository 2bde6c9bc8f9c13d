/* channel on, off, status, list, reset, stop */
#include "storage/channels.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "upstream/client.h"

#include <stdio.h>
#include <string.h>

struct action {
    const char *key;
    const char *method, *suffix; /* of the admin socket's route */
    json_t *body;                /* NULL: none */
    db_job offline;              /* NULL: needs a running server */
};

static int on_job(struct store *st, void *arg, struct err *err)
{
    return channels_put(st, ((struct action *)arg)->key, true, -1, clock_wall_ms(), err);
}

static int off_job(struct store *st, void *arg, struct err *err)
{
    return channels_put(st, ((struct action *)arg)->key, false, -1, clock_wall_ms(), err);
}

static int reset_job(struct store *st, void *arg, struct err *err)
{
    return channels_reset(st, ((struct action *)arg)->key, clock_wall_ms(), err);
}

static int path_of(const char *key, const char *suffix, char **ret, struct err *err)
{
    CLEANUP(free_str) char *escaped = NULL;

    if (client_escape(key, &escaped, err) < 0)
        return -1;
    if (asprintf(ret, "/v1/channels/%s%s", escaped, suffix) < 0) {
        *ret = NULL;
        return err_no_memory(err);
    }
    return 0;
}

static int act(const struct cli *cli, struct action *a)
{
    CLEANUP(session_close) struct session s;
    CLEANUP(free_str) char *path = NULL;
    CLEANUP(json_free) json_t *body = a->body;
    struct err err;

    session_init(&s);
    a->key = cli->words[0];
    if (channel_key_check(a->key, &err) < 0)
        return cli_fail(&err);
    if (session_open(cli, DB_WRITE, &s) < 0)
        return 1;
    if (s.online) {
        if (path_of(a->key, a->suffix, &path, &err) < 0 ||
            session_call(&s, a->method, path, body, NULL, &err) < 0)
            return cli_fail(&err);
        return 0;
    }
    if (!a->offline) {
        err_set(&err, ERR_CONFLICT, "no server runs");
        return cli_fail(&err);
    }
    return db_write(s.db, a->offline, a, &err) < 0 ? cli_fail(&err) : 0;
}

int cmd_channel_on(const struct cli *cli)
{
    return act(
        cli, &(struct action){
                 .method = "PUT", .suffix = "", .body = json_pack("{s:b}", "enabled", 1), .offline = on_job});
}

int cmd_channel_off(const struct cli *cli)
{
    return act(cli, &(struct action){.method = "PUT",
                                     .suffix = "",
                                     .body = json_pack("{s:b}", "enabled", 0),
                                     .offline = off_job});
}

int cmd_channel_reset(const struct cli *cli)
{
    return act(cli, &(struct action){.method = "POST", .suffix = "/reset", .offline = reset_job});
}

int cmd_channel_stop(const struct cli *cli)
{
    return act(cli, &(struct action){.method = "POST", .suffix = "/stop"});
}

/* The same form as the service's answers; what only a running server knows is absent. */
static json_t *to_json(const struct channel *c)
{
    return json_pack("{s:s, s:b, s:b}", "key", c->key, "enabled", (int)c->enabled, "reset_pending",
                     (int)channel_reset_pending(c));
}

static int collect(const struct channel *c, void *arg, struct err *err)
{
    json_t *one = to_json(c);

    return one && json_array_append_new(arg, one) == 0 ? 0 : err_no_memory(err);
}

static int list_job(struct store *st, void *arg, struct err *err)
{
    return channels_each(st, "", collect, arg, err);
}

struct look_up {
    const char *key;
    json_t *found;
};

static int get_job(struct store *st, void *arg, struct err *err)
{
    struct look_up *l = arg;
    CLEANUP(channel_free_p) struct channel *c = NULL;

    if (channels_get(st, l->key, &c, err) < 0)
        return -1;
    l->found = to_json(c);
    return l->found ? 0 : err_no_memory(err);
}

static void print_channel(const json_t *c)
{
    const json_t *busy = json_object_get(c, "busy"), *queued = json_object_get(c, "queued");

    printf("%-8s ", json_is_true(json_object_get(c, "enabled")) ? "enabled" : "disabled");
    if (busy)
        printf("%-5s %6lld queued  ", json_is_true(busy) ? "busy" : "idle",
               (long long)json_integer_value(queued));
    printf("%s  ", json_is_true(json_object_get(c, "reset_pending")) ? "reset pending" : "-");
    cli_print_text(stdout, json_str(c, "key") ? json_str(c, "key") : "");
    fputc('\n', stdout);
}

static void print_all(const struct cli *cli, const json_t *value)
{
    size_t i;
    json_t *one;

    if (cli->json) {
        json_dumpf(value, stdout, JSON_INDENT(2));
        fputc('\n', stdout);
    } else if (json_is_array(value)) {
        json_array_foreach(value, i, one)
            print_channel(one);
    } else {
        print_channel(value);
    }
}

/* Every page of GET /v1/channels. */
static int list_online(const struct session *s, json_t *all, struct err *err)
{
    CLEANUP(free_str) char *path = strdup("/v1/channels?limit=100");

    while (path) {
        CLEANUP(json_free) json_t *page = NULL;
        CLEANUP(free_str) char *cursor = NULL;
        if (session_call(s, "GET", path, NULL, &page, err) < 0)
            return -1;
        if (json_array_extend(all, json_object_get(page, "data")) < 0)
            return err_set(err, ERR_UPSTREAM, "the server's answer is no list");
        const char *next = json_str(page, "next_cursor");
        free(STEAL(path));
        if (!next)
            return 0;
        if (client_escape(next, &cursor, err) < 0)
            return -1;
        if (asprintf(&path, "/v1/channels?limit=100&cursor=%s", cursor) < 0)
            path = NULL;
    }
    return err_no_memory(err);
}

int cmd_channel_list(const struct cli *cli)
{
    CLEANUP(session_close) struct session s;
    CLEANUP(json_free) json_t *all = json_array();
    struct err err;

    session_init(&s);
    if (session_open(cli, DB_READ, &s) < 0)
        return 1;
    if ((s.online ? list_online(&s, all, &err) : db_read(s.db, list_job, all, &err)) < 0)
        return cli_fail(&err);
    print_all(cli, all);
    return 0;
}

int cmd_channel_status(const struct cli *cli)
{
    CLEANUP(session_close) struct session s;
    CLEANUP(free_str) char *path = NULL;
    CLEANUP(json_free) json_t *found = NULL;
    struct look_up l = {.key = cli->words[0]};
    struct err err;

    session_init(&s);
    if (session_open(cli, DB_READ, &s) < 0)
        return 1;
    int rc = s.online ? path_of(l.key, "", &path, &err) : db_read(s.db, get_job, &l, &err);
    if (rc == 0 && s.online)
        rc = session_call(&s, "GET", path, NULL, &l.found, &err);
    found = l.found;
    if (rc < 0)
        return cli_fail(&err);
    print_all(cli, found);
    return 0;
}
