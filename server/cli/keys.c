/* key create, key list, key revoke */
#include "storage/keys.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "upstream/client.h"

#include <stdio.h>
#include <string.h>

static json_t *list_of(const char *const *words, int count)
{
    json_t *list = json_array();

    for (int i = 0; i < count; i++)
        json_array_append_new(list, json_string(words[i]));
    return list;
}

struct creation {
    const char *name;
    unsigned scopes;
    const json_t *globs;
    char id[KEY_ID_SIZE], token[KEY_TOKEN_SIZE];
};

static int create_job(struct store *st, void *arg, struct err *err)
{
    struct creation *c = arg;

    return keys_create(st, c->name, c->scopes, c->globs, clock_wall_ms(), c->id, c->token, err);
}

static int create_online(const struct session *s, struct creation *c, struct err *err)
{
    CLEANUP(json_free)
    json_t *body =
        json_pack("{s:s, s:o, s:O}", "name", c->name, "scopes", scopes_json(c->scopes), "channels", c->globs);
    CLEANUP(json_free) json_t *answer = NULL;

    if (!body)
        return err_no_memory(err);
    if (session_call(s, "POST", "/v1/keys", body, &answer, err) < 0)
        return -1;
    const char *id = json_str(answer, "id"), *token = json_str(answer, "key");
    if (!id || !token || strlen(id) >= sizeof c->id || strlen(token) >= sizeof c->token)
        return err_set(err, ERR_UPSTREAM, "the server's answer holds no key");
    memcpy(c->id, id, strlen(id) + 1);
    memcpy(c->token, token, strlen(token) + 1);
    return 0;
}

int cmd_key_create(const struct cli *cli)
{
    CLEANUP(session_close) struct session s;
    CLEANUP(json_free) json_t *globs = list_of(cli->channels, cli->channel_count);
    struct creation c = {.name = cli->words[0], .globs = globs};
    struct err err;

    for (int i = 0; i < cli->scope_count; i++) {
        unsigned bit = scope_parse(cli->scopes[i]);
        if (bit == 0) {
            err_set(&err, ERR_USAGE, "%s is no scope: turns, turns:read, channels, files, admin",
                    cli->scopes[i]);
            session_init(&s);
            return cli_fail(&err);
        }
        c.scopes |= bit;
    }
    session_init(&s);
    if (api_key_check(c.name, c.scopes, globs, &err) < 0)
        return cli_fail(&err);
    if (session_open(cli, DB_WRITE, &s) < 0)
        return 1;
    if ((s.online ? create_online(&s, &c, &err) : db_write(s.db, create_job, &c, &err)) < 0)
        return cli_fail(&err);
    printf("%s\n", c.token);
    fprintf(stderr, "key %s made; this is the only time it is shown\n", c.id);
    secret_wipe(c.token, sizeof c.token);
    return 0;
}

static int collect(const struct api_key *k, void *arg, struct err *err)
{
    json_t *one = json_pack("{s:s, s:s, s:o, s:O, s:I, s:I}", "id", k->id, "name", k->name, "scopes",
                            scopes_json(k->scopes), "channels", k->globs, "created_ms",
                            (json_int_t)k->created_ms, "revoked_ms", (json_int_t)k->revoked_ms);

    return one && json_array_append_new(arg, one) == 0 ? 0 : err_no_memory(err);
}

static int list_job(struct store *st, void *arg, struct err *err)
{
    return keys_each(st, collect, arg, err);
}

static void print_joined(const json_t *list)
{
    size_t i;
    json_t *one;

    json_array_foreach(list, i, one) {
        if (i)
            fputc(',', stdout);
        cli_print_text(stdout, json_string_value(one));
    }
}

/* Tab-separated, for awk: id, name, state, scopes, channels, made. None of them can hold a tab. */
static void print_key(const json_t *k)
{
    char when[CLOCK_RFC3339_SIZE];
    bool revoked = json_integer_value(json_object_get(k, "revoked_ms")) != 0;

    printf("%s\t", json_str(k, "id"));
    cli_print_text(stdout, json_str(k, "name"));
    printf("\t%s\t", revoked ? "revoked" : "in force");
    print_joined(json_object_get(k, "scopes"));
    fputc('\t', stdout);
    print_joined(json_object_get(k, "channels"));
    printf("\t%s\n", clock_rfc3339(json_integer_value(json_object_get(k, "created_ms")), when));
}

int cmd_key_list(const struct cli *cli)
{
    CLEANUP(session_close) struct session s;
    CLEANUP(json_free) json_t *keys = json_array();
    struct err err;
    size_t i;
    json_t *one;

    session_init(&s);
    if (session_open_reading(cli, &s) < 0)
        return 1;
    if (db_read(s.db, list_job, keys, &err) < 0)
        return cli_fail(&err);
    if (cli->json) {
        json_dumpf(keys, stdout, JSON_INDENT(2));
        fputc('\n', stdout);
        return 0;
    }
    json_array_foreach(keys, i, one)
        print_key(one);
    return 0;
}

static int revoke_job(struct store *st, void *arg, struct err *err)
{
    return keys_revoke(st, arg, clock_wall_ms(), err);
}

int cmd_key_revoke(const struct cli *cli)
{
    CLEANUP(session_close) struct session s;
    CLEANUP(free_str) char *id = NULL;
    CLEANUP(free_str) char *path = NULL;
    struct err err;

    session_init(&s);
    if (session_open(cli, DB_WRITE, &s) < 0)
        return 1;
    if (!s.online) {
        if (!(id = strdup(cli->words[0])))
            return cli_fail((err_no_memory(&err), &err));
        return db_write(s.db, revoke_job, id, &err) < 0 ? cli_fail(&err) : 0;
    }
    if (client_escape(cli->words[0], &id, &err) < 0)
        return cli_fail(&err);
    if (asprintf(&path, "/v1/keys/%s", id) < 0)
        path = NULL;
    if (!path || session_call(&s, "DELETE", path, NULL, NULL, &err) < 0)
        return path ? cli_fail(&err) : 1;
    return 0;
}
