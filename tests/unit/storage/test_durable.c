/* Lists, cancels, second attempts, events as they are read, idempotency keys, retention, copies. */
#include "rig.h"

#include "storage/idempotency.h"
#include "storage/retention.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct rig open_with(int turns)
{
    struct rig r = rig_open();
    struct err err;
    char id[16], request[64];

    cr_assert_eq(rig_put(r.db, "web:a", true, -1, &err), 0);
    cr_assert_eq(rig_put(r.db, "web:b", true, -1, &err), 0);
    for (int i = 1; i <= turns; i++) {
        snprintf(id, sizeof id, "turn_%d", i);
        snprintf(request, sizeof request, "{\"text\":\"x\",\"speaker\":{\"id\":\"s%d\",\"name\":\"n\"}}",
                 i % 3);
        cr_assert_eq(rig_insert(r.db, id, i % 2 ? "web:a" : "web:b", request, false, &err), 0, "%s",
                     err.text);
    }
    return r;
}

struct listing {
    struct turn_filter filter;
    unsigned most;
    char ids[512];
};

static int list_one(const struct turn *t, void *arg, struct err *err)
{
    struct listing *l = arg;

    (void)err;
    strcat(strcat(l->ids, t->id + 5), " ");
    return --l->most == 0;
}

static int list_job(struct store *st, void *arg, struct err *err)
{
    struct listing *l = arg;

    l->ids[0] = '\0';
    return turns_list(st, &l->filter, list_one, l, err);
}

static const char *list(struct rig *r, struct turn_filter filter, unsigned most)
{
    static struct listing l;
    struct err err;

    l = (struct listing){.filter = filter, .most = most};
    cr_assert_eq(db_read(r->db, list_job, &l, &err), 0, "%s", err.text);
    return l.ids;
}

Test(durable, lists_go_backwards_and_filter)
{
    struct rig r = open_with(6);
    struct err err;
    bool reset;
    int64_t seen;

    cr_assert_str_eq(list(&r, (struct turn_filter){.status = -1}, 99), "6 5 4 3 2 1 ");
    cr_assert_str_eq(list(&r, (struct turn_filter){.status = -1}, 2), "6 5 ");
    struct turn *five = rig_turn(r.db, "turn_5");
    cr_assert_str_eq(list(&r, (struct turn_filter){.status = -1, .before = five->seq}, 2), "4 3 ");
    turn_free(five);
    cr_assert_str_eq(list(&r, (struct turn_filter){.status = -1, .channel = "web:a"}, 99), "5 3 1 ");
    cr_assert_str_eq(list(&r, (struct turn_filter){.status = -1, .speaker_id = "s0"}, 99), "6 3 ");
    cr_assert_str_eq(list(&r, (struct turn_filter){.status = -1, .key_id = "nobody"}, 99), "");
    cr_assert_eq(rig_start(r.db, "turn_1", &reset, &seen, &err), 0);
    cr_assert_str_eq(list(&r, (struct turn_filter){.status = TURN_RUNNING}, 99), "1 ");
    cr_assert_str_eq(list(&r, (struct turn_filter){.status = TURN_QUEUED, .channel = "web:a"}, 99), "5 3 ");
    cr_assert_str_eq(list(&r, (struct turn_filter){.status = -1, .until_ms = 1}, 99), "");
    cr_assert_str_eq(list(&r, (struct turn_filter){.status = -1, .since_ms = INT64_MAX}, 99), "");
    rig_close(&r);
}

struct cancel {
    const char *id;
    bool alive, ended, again;
};

static int cancel_job(struct store *st, void *arg, struct err *err)
{
    struct cancel *c = arg;

    return turns_cancel(st, c->id, c->alive, 77, &c->ended, err);
}

static int recover_job(struct store *st, void *arg, struct err *err)
{
    struct cancel *c = arg;

    return turns_recover(st, c->id, 88, &c->again, err);
}

Test(durable, cancel_ends_what_waits_and_marks_what_runs)
{
    struct rig r = open_with(2);
    struct cancel c = {.id = "turn_1"};
    struct err err;
    bool reset;
    int64_t seen;

    cr_assert_eq(db_write(r.db, cancel_job, &c, &err), 0);
    cr_assert(c.ended);
    struct turn *t = rig_turn(r.db, "turn_1");
    cr_assert_eq(t->status, TURN_CANCELED);
    cr_assert_str_eq(t->error_code, "canceled");
    turn_free(t);

    c.id = "turn_2";
    cr_assert_eq(rig_start(r.db, "turn_2", &reset, &seen, &err), 0);
    cr_assert_eq(db_write(r.db, cancel_job, &c, &err), 0);
    cr_assert_not(c.ended);
    t = rig_turn(r.db, "turn_2");
    cr_assert_eq(t->status, TURN_RUNNING);
    cr_assert_eq(t->cancel_requested_ms, 77);
    turn_free(t);
    /* a restart makes good what was asked for */
    cr_assert_eq(db_write(r.db, recover_job, &c, &err), 0);
    cr_assert_not(c.again);
    t = rig_turn(r.db, "turn_2");
    cr_assert_eq(t->status, TURN_CANCELED);
    turn_free(t);

    c.id = "turn_9";
    cr_assert_eq(db_write(r.db, cancel_job, &c, &err), -1);
    cr_assert_eq(err.code, ERR_NOT_FOUND);
    rig_close(&r);
}

Test(durable, cancel_of_an_ended_turn_is_noted_while_its_container_lives)
{
    struct rig r = open_with(1);
    struct cancel c = {.id = "turn_1"};
    struct err err;
    bool reset;
    int64_t seen;

    cr_assert_eq(rig_start(r.db, "turn_1", &reset, &seen, &err), 0);
    cr_assert_eq(rig_end(r.db, "turn_1", END_NONE, seen, &err), 0);
    for (int alive = 0; alive < 2; alive++) {
        c.alive = alive;
        cr_assert_eq(db_write(r.db, cancel_job, &c, &err), 0);
        cr_assert(c.ended);
        struct turn *t = rig_turn(r.db, "turn_1");
        cr_assert_eq(t->status, TURN_SUCCEEDED);
        cr_assert_eq(t->cancel_requested_ms, alive ? 77 : 0);
        turn_free(t);
    }
    rig_close(&r);
}

Test(durable, attempts_are_counted)
{
    struct rig r = open_with(1);
    struct cancel c = {.id = "turn_1"};
    struct err err;
    bool reset;
    int64_t seen;

    rig_sql(r.db, "UPDATE turns SET max_attempts = 2");
    cr_assert_eq(rig_start(r.db, "turn_1", &reset, &seen, &err), 0);
    cr_assert_eq(db_write(r.db, recover_job, &c, &err), 0);
    cr_assert(c.again);
    cr_assert_str_eq(rig_ask(r.db, "SELECT status || attempts FROM turns"), "queued1");
    rig_sql(r.db, "DELETE FROM slots"); /* as every start of the service does */
    cr_assert_eq(rig_start(r.db, "turn_1", &reset, &seen, &err), 0);
    cr_assert_eq(db_write(r.db, recover_job, &c, &err), 0);
    cr_assert_not(c.again);
    cr_assert_str_eq(rig_ask(r.db, "SELECT status || attempts FROM turns"), "interrupted2");
    cr_assert_str_eq(
        rig_ask(r.db, "SELECT group_concat(type, ' ') FROM (SELECT type FROM events ORDER BY n)"),
        "queued started queued started ended");
    rig_close(&r);
}

struct reading {
    int64_t turn, after;
    char got[256];
};

static int read_one(const struct event *e, void *arg, struct err *err)
{
    struct reading *r = arg;
    size_t len = strlen(r->got);
    int64_t position = json_integer_value(json_object_get(e->data, "position"));

    (void)err;
    snprintf(r->got + len, sizeof r->got - len, "%d:%s%s ", (int)e->n, e->type, position ? "+" : "");
    return strcmp(e->type, "stop") == 0;
}

static int read_job(struct store *st, void *arg, struct err *err)
{
    struct reading *r = arg;

    return events_each(st, r->turn, r->after, read_one, r, err);
}

Test(durable, events_are_read_from_where_one_was)
{
    struct rig r = open_with(3);
    struct err err;
    bool reset;
    int64_t seen;

    cr_assert_eq(rig_start(r.db, "turn_3", &reset, &seen, &err), 0);
    cr_assert_eq(rig_end(r.db, "turn_3", END_NONE, seen, &err), 0);
    struct turn *t = rig_turn(r.db, "turn_3");
    struct reading all = {.turn = t->seq}, later = {.turn = t->seq, .after = 2};
    turn_free(t);
    cr_assert_eq(db_read(r.db, read_job, &all, &err), 0);
    cr_assert_str_eq(all.got, "1:queued+ 2:started 3:reply 4:ended "); /* the rig gives this one a position */
    cr_assert_eq(db_read(r.db, read_job, &later, &err), 0);
    cr_assert_str_eq(later.got, "3:reply 4:ended ");
    rig_close(&r);
}

struct naming {
    const char *key, *name;
    unsigned char hash[32];
    char turn_id[TURN_ID_SIZE];
};

static int put_job(struct store *st, void *arg, struct err *err)
{
    struct naming *n = arg;

    return idempotency_put(st, n->key, n->name, n->hash, n->turn_id, 5, err);
}

static int find_job(struct store *st, void *arg, struct err *err)
{
    struct naming *n = arg;

    return idempotency_find(st, n->key, n->name, n->hash, n->turn_id, err);
}

Test(durable, idempotency_keys_belong_to_one_key_and_one_body)
{
    struct rig r = open_with(1);
    struct naming n = {.key = "k", .name = "order-1", .hash = {1}, .turn_id = "turn_1"};
    struct err err;

    cr_assert_eq(db_write(r.db, put_job, &n, &err), 0, "%s", err.text);
    cr_assert_eq(db_write(r.db, put_job, &n, &err), -1, "twice");
    n.turn_id[0] = '\0';
    cr_assert_eq(db_read(r.db, find_job, &n, &err), 0);
    cr_assert_str_eq(n.turn_id, "turn_1");
    n.hash[31] = 1;
    cr_assert_eq(db_read(r.db, find_job, &n, &err), -1);
    cr_assert_eq(err.code, ERR_INVALID);
    n.key = "other";
    cr_assert_eq(db_read(r.db, find_job, &n, &err), -1);
    cr_assert_eq(err.code, ERR_NOT_FOUND);
    rig_close(&r);
}

struct pruning {
    struct retention rules;
    int removed;
};

static int prune_job(struct store *st, void *arg, struct err *err)
{
    struct pruning *p = arg;

    return retention_prune(st, &p->rules, &p->removed, err);
}

static int prune(struct rig *r, struct retention rules)
{
    struct pruning p = {.rules = rules};
    struct err err;

    cr_assert_eq(db_write(r->db, prune_job, &p, &err), 0, "%s", err.text);
    return p.removed;
}

Test(durable, retention_takes_finished_turns_by_age_and_count)
{
    struct rig r = open_with(6);
    struct naming n = {.key = "k", .name = "x", .turn_id = "turn_1"};
    struct err err;

    rig_sql(r.db, "UPDATE turns SET finished_ms = seq * 100, status = 'succeeded' WHERE id <> 'turn_6'");
    cr_assert_eq(db_write(r.db, put_job, &n, &err), 0);
    /* events first: the history of what finished before 250 goes, the turns stay */
    cr_assert_eq(prune(&r, (struct retention){.events_before_ms = 250, .most = 100}), 2);
    cr_assert_str_eq(
        rig_ask(r.db, "SELECT group_concat(turn) FROM (SELECT DISTINCT turn FROM events ORDER BY turn)"),
        "3,4,5,6");
    cr_assert_str_eq(
        rig_ask(r.db,
                "SELECT group_concat(seq) FROM (SELECT seq FROM turns WHERE events_pruned ORDER BY seq)"),
        "1,2");
    /* by age: turn_1 has a name that is younger than names_before, and stays */
    cr_assert_eq(prune(&r, (struct retention){.turns_before_ms = 350, .most = 100}), 2);
    cr_assert_str_eq(rig_ask(r.db, "SELECT group_concat(seq) FROM (SELECT seq FROM turns ORDER BY seq)"),
                     "1,4,5,6");
    cr_assert_eq(prune(&r, (struct retention){.turns_before_ms = 350, .names_before_ms = 6, .most = 100}), 1);
    cr_assert_str_eq(rig_ask(r.db, "SELECT count(*) FROM idempotency"), "0");
    /* by count: one finished turn stays; what waits is never touched */
    cr_assert_eq(prune(&r, (struct retention){.turns_keep = 1, .most = 100}), 1);
    cr_assert_str_eq(rig_ask(r.db, "SELECT group_concat(seq) FROM (SELECT seq FROM turns ORDER BY seq)"),
                     "5,6");
    cr_assert_eq(prune(&r, (struct retention){.turns_keep = 1, .most = 100}), 0);
    rig_close(&r);
}

Test(durable, retention_leaves_a_turn_whose_container_may_live)
{
    struct rig r = open_with(3);

    rig_sql(r.db, "UPDATE turns SET finished_ms = 1, status = 'succeeded'");
    rig_sql(r.db, "INSERT INTO slots VALUES ('s', 'boot', 'turn_2')");
    cr_assert_eq(prune(&r, (struct retention){.turns_before_ms = 2, .turns_keep = 1, .most = 4}), 2);
    cr_assert_str_eq(rig_ask(r.db, "SELECT group_concat(id) FROM turns"), "turn_2");
    rig_sql(r.db, "DELETE FROM slots");
    cr_assert_eq(prune(&r, (struct retention){.turns_before_ms = 2, .most = 4}), 1);
    rig_close(&r);
}

Test(durable, retention_takes_a_few_at_a_time)
{
    struct rig r = open_with(6);

    rig_sql(r.db, "UPDATE turns SET finished_ms = 1, status = 'succeeded'");
    cr_assert_eq(prune(&r, (struct retention){.turns_before_ms = 2, .most = 4}), 4);
    cr_assert_eq(prune(&r, (struct retention){.turns_before_ms = 2, .most = 4}), 2);
    rig_close(&r);
}

Test(durable, a_copy_is_a_whole_state)
{
    struct rig r = open_with(3);
    struct db *copy = NULL;
    struct err err;
    char path[256];

    snprintf(path, sizeof path, "%s/copy.db", r.dir);
    cr_assert_eq(db_backup(r.db, path, &err), 0, "%s", err.text);
    cr_assert_eq(db_backup(r.db, path, &err), -1, "it is there already");
    cr_assert_eq(db_open(path, DB_WRITE, &copy, &err), 0, "%s", err.text);
    cr_assert_eq(db_integrity(copy, true, &err), 0, "%s", err.text);
    cr_assert_str_eq(rig_ask(copy, "SELECT count(*) FROM turns"), "3");
    db_close(copy);
    rig_close(&r);
}
