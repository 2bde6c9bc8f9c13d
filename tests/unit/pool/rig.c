#include "rig.h"

#include "base/secret.h"
#include "storage/channels.h"

#include <fcntl.h>

struct rig *make_rig(void)
{
    struct rig *r = calloc(1, sizeof *r);
    struct err err;

    cr_assert_eq(secret_init(&err), 0);
    r->dir = scratch_dir();
    r->path = scratch_path(r->dir, "state.db");
    r->run = scratch_path(r->dir, "run");
    r->workspaces = scratch_path(r->dir, "workspaces");
    cr_assert(mkdir(r->run, 0700) == 0 && mkdir(r->workspaces, 0700) == 0);
    cr_assert_eq(db_open(r->path, DB_WRITE, &r->db, &err), 0, "%s", err.text);
    cr_assert_eq(queue_new(&(struct queue_limits){100, 100, 100}, &r->queue, &err), 0);
    cr_assert_eq(bus_new(&r->bus, &err), 0);
    r->pool.deps = (struct pool_deps){.db = r->db,
                                      .queue = r->queue,
                                      .bus = r->bus,
                                      .boot = "boot",
                                      .run_root = r->run,
                                      .workspace_root = r->workspaces,
                                      .state_dir = r->dir};
    r->pool.has_room = true;
    r->pool.run_fd = open(r->run, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    r->pool.workspace_fd = open(r->workspaces, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    pthread_mutex_init(&r->pool.lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&r->pool.changed, &attr);
    pthread_condattr_destroy(&attr);
    return r;
}

void free_rig(struct rig *r)
{
    queue_free(r->queue);
    bus_free(r->bus);
    db_close(r->db);
    close(r->pool.run_fd);
    close(r->pool.workspace_fd);
    free(r->path);
    free(r->run);
    free(r->workspaces);
    scratch_remove(r->dir);
    free(r);
}

int put_job(struct store *st, void *arg, struct err *err)
{
    struct call *c = arg;
    return channels_put(st, c->channel, c->enabled, -1, 1, err);
}

int insert_job(struct store *st, void *arg, struct err *err)
{
    struct call *c = arg;
    CLEANUP(json_free) json_t *request = json_pack("{s:s}", "text", "x");
    struct turn_new t = {.id = c->id, .channel = c->channel, .key_id = "k", .request = request, .now_ms = 1};
    return turns_insert(st, &t, err);
}

int start_job(struct store *st, void *arg, struct err *err)
{
    struct call *c = arg;
    bool reset;
    int64_t seen;
    return turns_start(st, c->id, c->id, "boot", 2, &reset, &seen, err);
}

static int get_job(struct store *st, void *arg, struct err *err)
{
    struct call *c = arg;
    return turns_get(st, c->id, &c->turn, err);
}

void write_db(struct rig *r, db_job job, struct call c)
{
    struct err err;
    cr_assert_eq(db_write(r->db, job, &c, &err), 0, "%s", err.text);
}

void assert_status(struct rig *r, const char *id, enum turn_status want, const char *code)
{
    struct call c = {.id = id};
    struct err err;

    cr_assert_eq(db_read(r->db, get_job, &c, &err), 0, "%s", err.text);
    cr_assert_eq(c.turn->status, want, "%s is %s", id, turn_status_name(c.turn->status));
    cr_assert_str_eq(c.turn->error_code ? c.turn->error_code : "", code);
    turn_free(c.turn);
}

void assert_pops(struct rig *r, const char *id, const char *channel)
{
    struct queue_item item;

    cr_assert_eq(queue_pop(r->queue, 0, &item), 0, "%s waits", id);
    cr_assert_str_eq(item.turn_id, id);
    cr_assert_str_eq(item.channel, channel);
    free(item.channel);
}

void push_turn(struct rig *r, const char *id, const char *channel)
{
    struct queue_place *place = NULL;
    struct err err;

    write_db(r, put_job, (struct call){.channel = channel, .enabled = true});
    write_db(r, insert_job, (struct call){.id = id, .channel = channel});
    cr_assert_eq(queue_reserve(r->queue, channel, "k", &place, &err), 0);
    queue_push(r->queue, place, id);
}
