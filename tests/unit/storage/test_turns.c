#include "rig.h"

#include "storage/retention.h"
#include "storage/store.h"

#define PLAIN "{\"text\":\"x\",\"speaker\":{\"id\":\"1\",\"name\":\"A\"}}"

static struct rig open_with_channel(void)
{
    struct rig r = rig_open();
    struct err err;
    cr_assert_eq(rig_put(r.db, "web:a", true, -1, &err), 0, "%s", err.text);
    return r;
}

Test(turns, statuses_follow_the_ending)
{
    for (int e = END_NONE; e <= END_WORKSPACE_VIOLATION; e++) {
        enum turn_status want = e == END_NONE                                    ? TURN_SUCCEEDED
                                : e == END_TIMEOUT                               ? TURN_TIMED_OUT
                                : e == END_CANCELED || e == END_CHANNEL_DISABLED ? TURN_CANCELED
                                : e == END_SERVER_RESTARTED                      ? TURN_INTERRUPTED
                                                                                 : TURN_FAILED;
        cr_assert_eq(turn_status_of((enum ending)e), want, "%s", ending_name((enum ending)e));
        cr_assert(turn_ended(want));
    }
    cr_assert_not(turn_ended(TURN_QUEUED));
    cr_assert_not(turn_ended(TURN_RUNNING));
    cr_assert(turn_ended(TURN_IGNORED));
    cr_assert_str_eq(turn_status_name(TURN_TIMED_OUT), "timed_out");
}

Test(turns, only_enabled_channels_take_turns)
{
    struct rig r = open_with_channel();
    struct err err;

    cr_assert_eq(rig_insert(r.db, "turn_1", "web:none", PLAIN, false, &err), -1);
    cr_assert_eq(err.code, ERR_CHANNEL_DISABLED, "%s", err.text);
    cr_assert_eq(rig_put(r.db, "web:a", false, -1, &err), 0);
    cr_assert_eq(rig_insert(r.db, "turn_1", "web:a", PLAIN, false, &err), -1);
    cr_assert_eq(err.code, ERR_CHANNEL_DISABLED);
    cr_assert_eq(rig_insert(r.db, "turn_1", "web:a", PLAIN, true, &err), -1, "ignored ones too");
    cr_assert_eq(err.code, ERR_CHANNEL_DISABLED);
    cr_assert_str_eq(rig_ask(r.db, "SELECT count(*) FROM turns"), "0");
    cr_assert_str_eq(rig_ask(r.db, "SELECT count(*) FROM events"), "0");
    rig_close(&r);
}

Test(turns, a_whole_life_is_kept_with_numbered_events)
{
    struct rig r = open_with_channel();
    struct err err;
    bool reset = true;
    int64_t seen = -1;

    cr_assert_eq(rig_insert(r.db, "turn_1", "web:a", PLAIN, false, &err), 0, "%s", err.text);
    struct turn *t = rig_turn(r.db, "turn_1");
    cr_assert(t->status == TURN_QUEUED && t->created_ms == 2000 && t->started_ms == 0 && t->finished_ms == 0);
    cr_assert_str_eq(t->channel, "web:a");
    cr_assert_str_eq(t->key_id, "owner");
    cr_assert_str_eq(json_str(t->request, "text"), "x");
    cr_assert(!t->reply && !t->error_code && !t->metrics && !t->logs);
    turn_free(t);
    cr_assert_eq(rig_start(r.db, "turn_1", &reset, &seen, &err), 0, "%s", err.text);
    cr_assert(!reset && seen == 0);
    cr_assert_str_eq(rig_ask(r.db, "SELECT slot || ' ' || boot || ' ' || turn_id FROM slots"),
                     "slot-of-turn_1 boot turn_1");
    cr_assert_eq(rig_end(r.db, "turn_1", END_NONE, seen, &err), 0, "%s", err.text);
    t = rig_turn(r.db, "turn_1");
    cr_assert(t->status == TURN_SUCCEEDED && t->started_ms == 3000 && t->finished_ms == 4000);
    cr_assert_str_eq(json_str(t->reply, "text"), "done");
    cr_assert_str_eq(json_str(json_object_get(t->logs, "stderr"), "text"), "noise");
    cr_assert_null(t->error_code);
    turn_free(t);
    rig_reopen(&r);
    cr_assert_str_eq(
        rig_ask(r.db, "SELECT group_concat(n || type, ' ') FROM (SELECT * FROM events ORDER BY n)"),
        "1queued 2started 3reply 4ended");
    rig_close(&r);
}

Test(turns, start_needs_a_queued_turn_of_an_enabled_channel)
{
    struct rig r = open_with_channel();
    struct err err;
    bool reset;
    int64_t seen;

    cr_assert_eq(rig_start(r.db, "turn_0", &reset, &seen, &err), -1);
    cr_assert_eq(err.code, ERR_NOT_FOUND);
    cr_assert_eq(rig_insert(r.db, "turn_1", "web:a", PLAIN, false, &err), 0);
    cr_assert_eq(rig_put(r.db, "web:a", false, -1, &err), 0);
    cr_assert_eq(rig_start(r.db, "turn_1", &reset, &seen, &err), -1);
    cr_assert_eq(err.code, ERR_CHANNEL_DISABLED, "turned off meanwhile: %s", err.text);
    cr_assert_str_eq(rig_ask(r.db, "SELECT count(*) FROM slots"), "0");
    cr_assert_eq(rig_put(r.db, "web:a", true, -1, &err), 0);
    cr_assert_eq(rig_start(r.db, "turn_1", &reset, &seen, &err), 0, "%s", err.text);
    /* the same start, because nobody knew whether its commit had reached the disk, changes nothing */
    cr_assert_eq(rig_start(r.db, "turn_1", &reset, &seen, &err), 0, "%s", err.text);
    cr_assert_str_eq(rig_ask(r.db, "SELECT attempts || count(*) FROM turns JOIN events ON turn = seq"), "12");
    rig_sql(r.db, "UPDATE slots SET slot = 'another'");
    cr_assert_eq(rig_start(r.db, "turn_1", &reset, &seen, &err), -1);
    cr_assert_eq(err.code, ERR_CONFLICT);
    rig_close(&r);
}

Test(turns, end_once)
{
    struct rig r = open_with_channel();
    struct err err;

    cr_assert_eq(rig_insert(r.db, "turn_1", "web:a", PLAIN, false, &err), 0);
    cr_assert_eq(rig_end(r.db, "turn_1", END_CANCELED, -1, &err), 0, "from the queue: %s", err.text);
    cr_assert_eq(rig_end(r.db, "turn_1", END_NONE, 0, &err), -1);
    cr_assert_eq(err.code, ERR_CONFLICT);
    struct turn *t = rig_turn(r.db, "turn_1");
    cr_assert_eq(t->status, TURN_CANCELED);
    cr_assert_str_eq(t->error_code, "canceled");
    cr_assert_str_eq(t->error_detail, ending_detail(END_CANCELED));
    cr_assert_null(t->reply);
    turn_free(t);
    cr_assert_str_eq(rig_ask(r.db, "SELECT data FROM events WHERE type = 'ended'"),
                     "{\"status\":\"canceled\",\"code\":\"canceled\"}");
    cr_assert_eq(rig_end(r.db, "turn_0", END_NONE, 0, &err), -1);
    cr_assert_eq(err.code, ERR_NOT_FOUND);
    rig_close(&r);
}

Test(turns, an_ignored_one_has_ended_already)
{
    struct rig r = open_with_channel();
    struct err err;
    bool reset;
    int64_t seen;

    cr_assert_eq(rig_insert(r.db, "turn_1", "web:a", PLAIN, true, &err), 0, "%s", err.text);
    struct turn *t = rig_turn(r.db, "turn_1");
    cr_assert(t->status == TURN_IGNORED && t->finished_ms == 2000 && !t->error_code);
    turn_free(t);
    cr_assert_eq(rig_start(r.db, "turn_1", &reset, &seen, &err), -1);
    cr_assert_eq(err.code, ERR_CONFLICT);
    cr_assert_eq(rig_end(r.db, "turn_1", END_NONE, 0, &err), -1);
    cr_assert_eq(err.code, ERR_CONFLICT);
    rig_close(&r);
}

struct canceling {
    const char *channel;
    char ids[256];
};

static void canceled(const char *id, void *arg)
{
    struct canceling *c = arg;
    size_t len = strlen(c->ids);
    snprintf(c->ids + len, sizeof c->ids - len, "%s ", id);
}

static int cancel_job(struct store *st, void *arg, struct err *err)
{
    struct canceling *c = arg;
    return turns_cancel_queued(st, c->channel, END_CHANNEL_DISABLED, 9000, canceled, c, err);
}

Test(turns, cancel_queued_spares_the_running_and_other_channels)
{
    struct rig r = open_with_channel();
    struct canceling c = {.channel = "web:a"};
    struct err err;
    bool reset;
    int64_t seen;

    cr_assert_eq(rig_put(r.db, "web:b", true, -1, &err), 0);
    for (int i = 0; i < 4; i++) {
        char id[16];
        snprintf(id, sizeof id, "turn_%d", i);
        cr_assert_eq(rig_insert(r.db, id, i == 2 ? "web:b" : "web:a", PLAIN, false, &err), 0);
    }
    cr_assert_eq(rig_start(r.db, "turn_0", &reset, &seen, &err), 0);
    cr_assert_eq(db_write(r.db, cancel_job, &c, &err), 0, "%s", err.text);
    cr_assert_str_eq(c.ids, "turn_1 turn_3 ");
    cr_assert_str_eq(
        rig_ask(r.db, "SELECT group_concat(status, ' ') FROM (SELECT * FROM turns ORDER BY seq)"),
        "running canceled queued canceled");
    cr_assert_str_eq(rig_ask(r.db, "SELECT error_code FROM turns WHERE id = 'turn_3'"), "channel_disabled");
    rig_close(&r);
}

static int collect(const struct turn *t, void *arg, struct err *err)
{
    char *ids = arg;
    (void)err;
    strcat(strcat(ids, t->id), " ");
    return strcmp(t->id, "turn_stop") == 0;
}

static int queued_job(struct store *st, void *arg, struct err *err)
{
    return turns_each(st, TURN_QUEUED, collect, arg, err);
}

Test(turns, are_told_in_order_of_acceptance)
{
    struct rig r = open_with_channel();
    char ids[256] = "";
    struct err err;
    static const char *const order[] = {"turn_z", "turn_a", "turn_stop", "turn_b"};

    for (size_t i = 0; i < ARRAY_LEN(order); i++)
        cr_assert_eq(rig_insert(r.db, order[i], "web:a", PLAIN, false, &err), 0);
    cr_assert_eq(db_read(r.db, queued_job, ids, &err), 0, "%s", err.text);
    cr_assert_str_eq(ids, "turn_z turn_a turn_stop ");
    rig_close(&r);
}

struct addition {
    const char *id, *type;
};

static int event_job(struct store *st, void *arg, struct err *err)
{
    struct addition *e = arg;
    return events_append(st, e->id, e->type, NULL, 1, err);
}

Test(events, are_numbered_for_each_turn)
{
    struct rig r = open_with_channel();
    struct err err;

    cr_assert_eq(db_write(r.db, event_job, &(struct addition){"turn_0", "model_call"}, &err), -1);
    cr_assert_eq(err.code, ERR_NOT_FOUND);
    cr_assert_eq(rig_insert(r.db, "turn_1", "web:a", PLAIN, false, &err), 0);
    cr_assert_eq(rig_insert(r.db, "turn_2", "web:a", PLAIN, false, &err), 0);
    for (int i = 0; i < 5; i++)
        cr_assert_eq(
            db_write(r.db, event_job, &(struct addition){i % 2 ? "turn_1" : "turn_2", "model_call"}, &err), 0,
            "%s", err.text);
    cr_assert_str_eq(
        rig_ask(r.db, "SELECT group_concat(n, '') FROM (SELECT n FROM events e JOIN turns t ON t.seq = "
                      "e.turn WHERE t.id = 'turn_1' ORDER BY n)"),
        "123");
    cr_assert_str_eq(
        rig_ask(r.db, "SELECT group_concat(n, '') FROM (SELECT n FROM events e JOIN turns t ON t.seq = "
                      "e.turn WHERE t.id = 'turn_2' ORDER BY n)"),
        "1234");
    rig_close(&r);
}

static int slots_job(struct store *st, void *arg, struct err *err)
{
    return arg ? slots_remove(st, arg, err) : slots_prune(st, err);
}

static int told(const char *slot, const char *turn_id, const char *channel, void *arg, struct err *err)
{
    char *list = arg;

    (void)err;
    strcat(strcat(strcat(strcat(strcat(strcat(list, slot), " "), turn_id), " "), channel), ";");
    return 0;
}

static int each_slot_job(struct store *st, void *arg, struct err *err)
{
    return slots_each(st, told, arg, err);
}

Test(slots, tell_their_turn_and_its_channel_until_they_go)
{
    struct rig r = open_with_channel();
    struct err err;
    bool reset;
    int64_t seen;
    char slot[] = "slot-of-turn_1", list[256] = "";

    for (int i = 0; i < 3; i++) {
        char id[16];
        snprintf(id, sizeof id, "turn_%d", i);
        cr_assert_eq(rig_insert(r.db, id, "web:a", PLAIN, false, &err), 0);
        cr_assert_eq(rig_start(r.db, id, &reset, &seen, &err), 0);
    }
    cr_assert_eq(db_write(r.db, slots_job, slot, &err), 0);
    cr_assert_eq(db_write(r.db, slots_job, slot, &err), 0, "again is fine");
    cr_assert_str_eq(rig_ask(r.db, "SELECT count(*) FROM slots"), "2");
    rig_sql(r.db, "DELETE FROM turns WHERE id = 'turn_0'");
    cr_assert_eq(db_read(r.db, each_slot_job, list, &err), 0);
    cr_assert_str_eq(list, "slot-of-turn_2 turn_2 web:a;");
    cr_assert_eq(db_write(r.db, slots_job, NULL, &err), 0);
    cr_assert_str_eq(rig_ask(r.db, "SELECT group_concat(slot) FROM slots"), "slot-of-turn_2");
    rig_close(&r);
}

static int get_job(struct store *st, void *arg, struct err *err)
{
    struct turn *t = NULL;
    int rc = turns_get(st, arg, &t, err);
    turn_free(t);
    return rc;
}

Test(turns, damaged_rows_fail_closed)
{
    struct rig r = open_with_channel();
    struct err err;
    char id[] = "turn_1";

    cr_assert_eq(rig_insert(r.db, id, "web:a", PLAIN, false, &err), 0);
    rig_sql(r.db, "UPDATE turns SET request = '{broken'");
    cr_assert_eq(db_read(r.db, get_job, id, &err), -1);
    cr_assert_eq(err.code, ERR_DATABASE, "%s", err.text);
    rig_close(&r);
}

static int nothing(const struct turn *t, void *arg, struct err *err)
{
    (void)t;
    (void)arg;
    (void)err;
    return 0;
}

static void no_one(const char *id, void *arg)
{
    (void)id;
    (void)arg;
}

/* Of all statements of this store since the last call: rows that were met by walking over a whole table or
 * index, which SQLite itself counts, and steps of its machine. */
static int scanned(struct store *st)
{
    int rows = 0;
    for (sqlite3_stmt *stmt = NULL; (stmt = sqlite3_next_stmt(st->sqlite, stmt));)
        rows += sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_FULLSCAN_STEP, 1);
    return rows;
}

static int stepped(struct store *st)
{
    int steps = 0;
    for (sqlite3_stmt *stmt = NULL; (stmt = sqlite3_next_stmt(st->sqlite, stmt));)
        steps += sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_VM_STEP, 1);
    return steps;
}

/* What runs every second, or for each of many. */
static int look_at_open_ones(struct store *st, void *arg, struct err *err)
{
    (void)arg;
    cr_assert_eq(turns_each(st, TURN_QUEUED, nothing, NULL, err), 0, "%s", err->text);
    cr_assert_eq(turns_each(st, TURN_RUNNING, nothing, NULL, err), 0, "%s", err->text);
    cr_assert_eq(turns_cancel_queued(st, "web:a", END_CANCELED, 1, no_one, NULL, err), 0, "%s", err->text);
    cr_assert_eq(scanned(st), 0);
    return 0;
}

/* turn_0 and on, `open` of them queued, the others ended at 4000. */
static void fill(struct rig *r, int all, int open)
{
    struct err err;
    bool reset;
    int64_t seen;

    for (int i = 0; i < all; i++) {
        char id[16];
        snprintf(id, sizeof id, "turn_%d", i);
        cr_assert_eq(rig_insert(r->db, id, "web:a", PLAIN, false, &err), 0, "%s", err.text);
        if (i >= all - open)
            continue;
        cr_assert_eq(rig_start(r->db, id, &reset, &seen, &err), 0, "%s", err.text);
        cr_assert_eq(rig_end(r->db, id, END_NONE, seen, &err), 0, "%s", err.text);
    }
    rig_reopen(r); /* statements of its own only */
}

Test(turns, open_ones_are_found_without_reading_the_ended)
{
    struct rig r = open_with_channel();
    struct err err;

    fill(&r, 20, 1);
    cr_assert_eq(db_write(r.db, look_at_open_ones, NULL, &err), 0, "%s", err.text);
    cr_assert_str_eq(rig_ask(r.db, "SELECT status FROM turns WHERE id = 'turn_19'"), "canceled");
    rig_close(&r);
}

/* By age, by count, the events: the first time something goes, then all that is left stays. */
static int prune_all_ways(struct store *st, void *arg, struct err *err)
{
    struct retention rules = {.turns_keep = 110, .events_before_ms = 5000, .most = 200};
    int removed, *idle = arg;

    cr_assert_eq(retention_prune(st, &rules, &removed, err), 0, "%s", err->text);
    cr_assert_eq(removed, 10 + 110);
    rules.turns_before_ms = 3999;
    stepped(st);
    cr_assert_eq(retention_prune(st, &rules, &removed, err), 0, "%s", err->text);
    cr_assert_eq(removed, 0);
    cr_assert_eq(scanned(st), 0);
    rules.turns_keep = 0; /* that rule counts through its index */
    stepped(st);
    cr_assert_eq(retention_prune(st, &rules, &removed, err), 0, "%s", err->text);
    *idle = stepped(st);
    return 0;
}

Test(turns, retention_reads_only_what_goes)
{
    struct rig r = open_with_channel();
    struct err err;
    int idle = 0;

    fill(&r, 130, 10);
    rig_sql(r.db, "DELETE FROM slots"); /* their containers are gone */
    cr_assert_eq(db_write(r.db, prune_all_ways, &idle, &err), 0, "%s", err.text);
    cr_assert_lt(idle, 110, "%d steps: it looks again at turns whose events are gone", idle);
    cr_assert_str_eq(rig_ask(r.db, "SELECT min(seq) || ' ' || count(*) FROM turns"), "11 120");
    rig_close(&r);
}

/* A key that sees its own turns only has none among many; the first page and a late one of everything. */
static int list_for_keys(struct store *st, void *arg, struct err *err)
{
    struct turn_filter own = {.status = -1, .key_id = "nobody"};
    struct turn_filter late = {.status = -1, .before = 3};
    char ids[64] = "";

    (void)arg;
    cr_assert_eq(turns_list(st, &own, nothing, NULL, err), 0, "%s", err->text);
    cr_assert_lt(stepped(st), 60, "it reads the turns of others");
    cr_assert_eq(turns_list(st, &late, collect, ids, err), 0, "%s", err->text);
    cr_assert_str_eq(ids, "turn_1 turn_0 ");
    cr_assert_lt(stepped(st), 120, "it reads what the pages before had");
    own.channel = "web:a";
    cr_assert_eq(turns_list(st, &own, nothing, NULL, err), 0, "%s", err->text);
    cr_assert_eq(scanned(st), 0);
    return 0;
}

Test(turns, lists_of_a_key_leave_out_those_of_others)
{
    struct rig r = open_with_channel();
    struct err err;

    fill(&r, 130, 120);
    cr_assert_eq(db_read(r.db, list_for_keys, NULL, &err), 0, "%s", err.text);
    rig_close(&r);
}
