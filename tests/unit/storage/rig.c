#include "rig.h"

#include "base/secret.h"
#include "storage/store.h"

struct rig rig_open(void)
{
    struct rig r = {.dir = scratch_dir()};
    struct err err;

    cr_assert_eq(secret_init(&err), 0);
    r.path = scratch_path(r.dir, "state.db");
    cr_assert_eq(db_open(r.path, DB_WRITE, &r.db, &err), 0, "%s", err.text);
    return r;
}

void rig_close(struct rig *r)
{
    db_close(r->db);
    free(r->path);
    scratch_remove(r->dir);
}

void rig_reopen(struct rig *r)
{
    struct err err;

    db_close(r->db);
    cr_assert_eq(db_open(r->path, DB_WRITE, &r->db, &err), 0, "%s", err.text);
}

json_t *rig_json(const char *text)
{
    struct err err;
    json_t *v = NULL;

    cr_assert_eq(json_parse(text, strlen(text), &v, &err), 0, "%s: %s", err.text, text);
    return v;
}

struct asked {
    const char *sql;
    char text[512];
};

static int ask(struct store *st, void *arg, struct err *err)
{
    struct asked *a = arg;
    sqlite3_stmt *stmt = NULL;

    if (sqlite3_prepare_v2(st->sqlite, a->sql, -1, &stmt, NULL) != SQLITE_OK)
        return store_fail(st, err, a->sql);
    int rc = stmt_step(st, stmt, err);
    if (rc == 1)
        snprintf(a->text, sizeof a->text, "%s", (const char *)sqlite3_column_text(stmt, 0));
    sqlite3_finalize(stmt);
    return rc < 0 ? -1 : 0;
}

const char *rig_ask(struct db *db, const char *sql)
{
    static struct asked a;
    struct err err;

    a = (struct asked){.sql = sql};
    cr_assert_eq(db_read(db, ask, &a, &err), 0, "%s", err.text);
    return a.text;
}

static int run_sql(struct store *st, void *arg, struct err *err)
{
    return store_exec(st, arg, err);
}

void rig_sql(struct db *db, const char *sql)
{
    char text[1024];
    struct err err;

    snprintf(text, sizeof text, "%s", sql);
    cr_assert_eq(db_write(db, run_sql, text, &err), 0, "%s", err.text);
}

struct call {
    const char *id, *channel;
    json_t *request;
    bool flag, *reset;
    int64_t number, *seen;
    enum ending ending;
    struct turn *turn;
    struct channel *found;
};

static int put(struct store *st, void *arg, struct err *err)
{
    struct call *c = arg;
    return channels_put(st, c->channel, c->flag, c->number, 1000, err);
}

int rig_put(struct db *db, const char *key, bool enabled, int64_t if_version, struct err *err)
{
    return db_write(db, put, &(struct call){.channel = key, .flag = enabled, .number = if_version}, err);
}

static int insert(struct store *st, void *arg, struct err *err)
{
    struct call *c = arg;
    struct turn_new t = {.id = c->id,
                         .channel = c->channel,
                         .key_id = "owner",
                         .request = c->request,
                         .ignored = c->flag,
                         .position = strcmp(c->id, "turn_3") == 0 ? 2 : 0,
                         .now_ms = 2000};
    return turns_insert(st, &t, err);
}

int rig_insert(struct db *db, const char *id, const char *channel, const char *request, bool ignored,
               struct err *err)
{
    CLEANUP(json_free) json_t *body = rig_json(request);

    return db_write(db, insert,
                    &(struct call){.id = id, .channel = channel, .request = body, .flag = ignored}, err);
}

static int start(struct store *st, void *arg, struct err *err)
{
    struct call *c = arg;
    char slot[64];
    snprintf(slot, sizeof slot, "slot-of-%s", c->id);
    return turns_start(st, c->id, slot, "boot", 3000, c->reset, c->seen, err);
}

int rig_start(struct db *db, const char *id, bool *reset, int64_t *seen, struct err *err)
{
    return db_write(db, start, &(struct call){.id = id, .reset = reset, .seen = seen}, err);
}

static int end(struct store *st, void *arg, struct err *err)
{
    struct call *c = arg;
    CLEANUP(json_free)
    json_t *logs = json_pack("{s:{s:s, s:i, s:b}}", "stderr", "text", "noise", "bytes", 5, "truncated", 0);
    struct turn_end e = {.id = c->id,
                         .ending = c->ending,
                         .reply = c->ending ? NULL : c->request,
                         .logs = logs,
                         .reset_seen = c->number,
                         .now_ms = 4000};
    return turns_end(st, &e, err);
}

int rig_end(struct db *db, const char *id, enum ending ending, int64_t seen, struct err *err)
{
    CLEANUP(json_free) json_t *reply = rig_json("{\"text\":\"done\"}");

    return db_write(db, end, &(struct call){.id = id, .ending = ending, .number = seen, .request = reply},
                    err);
}

static int reset(struct store *st, void *arg, struct err *err)
{
    return channels_reset(st, ((struct call *)arg)->channel, 5000, err);
}

int rig_reset(struct db *db, const char *key, struct err *err)
{
    return db_write(db, reset, &(struct call){.channel = key}, err);
}

static int get(struct store *st, void *arg, struct err *err)
{
    struct call *c = arg;
    return c->id ? turns_get(st, c->id, &c->turn, err) : channels_get(st, c->channel, &c->found, err);
}

struct turn *rig_turn(struct db *db, const char *id)
{
    struct call c = {.id = id};
    struct err err;
    cr_assert_eq(db_read(db, get, &c, &err), 0, "%s", err.text);
    return c.turn;
}

struct channel *rig_channel(struct db *db, const char *key)
{
    struct call c = {.channel = key};
    struct err err;
    cr_assert_eq(db_read(db, get, &c, &err), 0, "%s", err.text);
    return c.found;
}
