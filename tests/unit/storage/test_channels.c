#include "rig.h"

#include "base/limits.h"

Test(channel_key, has_an_error_for_each_rule)
{
    char longest[LIMIT_CHANNEL_KEY + 2];
    struct err err;
    static const struct {
        const char *key, *part; /* NULL: good */
    } rows[] = {
        {"web:lobby", NULL},
        {"a:b", NULL},
        {"a-b_9:x y:z*/..", NULL},
        {"web:\xC3\xA9", NULL},
        {"", "lower-case letter"},
        {"Web:x", "lower-case letter"},
        {"1:x", "lower-case letter"},
        {":x", "lower-case letter"},
        {"web", "colon"},
        {"web:", "colon"},
        {"wEb:x", "colon"},
        {"w b:x", "colon"},
        {"web:a\nb", "control"},
        {"web:a\x7F", "control"},
        {"web:\xC2\x85", "control"},
        {"web:\xFF", "UTF-8"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        err = (struct err){0};
        int rc = channel_key_check(rows[i].key, &err);
        cr_assert_eq(rc, rows[i].part ? -1 : 0, "%s: %s", rows[i].key, err.text);
        if (rows[i].part)
            cr_assert(err.code == ERR_INVALID && strstr(err.text, rows[i].part), "%s: %s", rows[i].key,
                      err.text);
    }
    memset(longest, 'a', sizeof longest);
    memcpy(longest, "web:", 4);
    longest[LIMIT_CHANNEL_KEY] = '\0';
    cr_assert_eq(channel_key_check(longest, &err), 0);
    longest[LIMIT_CHANNEL_KEY] = 'a';
    longest[LIMIT_CHANNEL_KEY + 1] = '\0';
    cr_assert_eq(channel_key_check(longest, &err), -1);
    cr_assert(strstr(err.text, "200 bytes"), "%s", err.text);
}

Test(channels, versions_guard_every_change)
{
    struct rig r = rig_open();
    struct err err;

    cr_assert_eq(rig_put(r.db, "web:a", true, 3, &err), -1);
    cr_assert_eq(err.code, ERR_PRECONDITION);
    cr_assert_eq(rig_put(r.db, "web:a", true, 0, &err), 0, "%s", err.text);
    cr_assert_eq(rig_put(r.db, "web:a", true, 0, &err), -1, "must not exist");
    cr_assert_eq(err.code, ERR_PRECONDITION);

    CLEANUP(channel_free_p) struct channel *c = rig_channel(r.db, "web:a");
    cr_assert(c->enabled && c->version == 1 && c->created_ms == 1000);
    cr_assert_eq(rig_put(r.db, "web:a", true, 1, &err), 0, "no change");
    channel_free(c);
    c = rig_channel(r.db, "web:a");
    cr_assert_eq(c->version, 1);
    cr_assert_eq(rig_put(r.db, "web:a", false, 1, &err), 0);
    cr_assert_eq(rig_put(r.db, "web:a", true, 1, &err), -1, "the ETag is old");
    cr_assert_eq(err.code, ERR_PRECONDITION);
    cr_assert_eq(rig_put(r.db, "web:a", true, -1, &err), 0);
    channel_free(c);
    c = rig_channel(r.db, "web:a");
    cr_assert_eq(c->version, 3);
    cr_assert_eq(rig_put(r.db, "Web", true, -1, &err), -1);
    cr_assert_eq(err.code, ERR_INVALID);
    rig_close(&r);
}

struct removal {
    const char *key;
    int64_t version;
};

static int delete_job(struct store *st, void *arg, struct err *err)
{
    struct removal *d = arg;
    return channels_delete(st, d->key, d->version, err);
}

Test(channels, delete_needs_the_version_and_keeps_turns)
{
    struct rig r = rig_open();
    struct err err;

    cr_assert_eq(db_write(r.db, delete_job, &(struct removal){"web:a", -1}, &err), -1);
    cr_assert_eq(err.code, ERR_NOT_FOUND);
    cr_assert_eq(rig_put(r.db, "web:a", true, -1, &err), 0);
    cr_assert_eq(rig_insert(r.db, "turn_1", "web:a", "{\"text\":\"x\"}", false, &err), 0, "%s", err.text);
    cr_assert_eq(db_write(r.db, delete_job, &(struct removal){"web:a", 7}, &err), -1);
    cr_assert_eq(err.code, ERR_PRECONDITION);
    cr_assert_eq(db_write(r.db, delete_job, &(struct removal){"web:a", 1}, &err), 0, "%s", err.text);
    cr_assert_eq(db_write(r.db, delete_job, &(struct removal){"web:a", 1}, &err), -1);
    turn_free(rig_turn(r.db, "turn_1"));
    rig_close(&r);
}

struct seen {
    char keys[256];
    int stop_after;
};

static int see(const struct channel *c, void *arg, struct err *err)
{
    struct seen *s = arg;
    size_t len = strlen(s->keys);

    snprintf(s->keys + len, sizeof s->keys - len, "%s ", c->key);
    if (s->stop_after < 0)
        return err_set(err, ERR_GONE, "enough");
    return s->stop_after && --s->stop_after == 0 ? 1 : 0;
}

static int list_job(struct store *st, void *arg, struct err *err)
{
    return channels_each(st, "web:a", see, arg, err);
}

Test(channels, are_listed_in_order_and_can_stop)
{
    struct rig r = rig_open();
    struct seen s = {0};
    struct err err;
    static const char *const keys[] = {"web:b", "api:x", "web:a", "web:c", "zoo:y"};

    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        cr_assert_eq(rig_put(r.db, keys[i], i % 2, -1, &err), 0);
    cr_assert_eq(db_read(r.db, list_job, &s, &err), 0, "%s", err.text);
    cr_assert_str_eq(s.keys, "web:b web:c zoo:y ");
    s = (struct seen){.stop_after = 2};
    cr_assert_eq(db_read(r.db, list_job, &s, &err), 0);
    cr_assert_str_eq(s.keys, "web:b web:c ");
    s = (struct seen){.stop_after = -1};
    cr_assert_eq(db_read(r.db, list_job, &s, &err), -1);
    cr_assert_eq(err.code, ERR_GONE);
    rig_close(&r);
}

/* Inserts, starts and ends one turn; whether it began without history. */
static bool run_turn(struct db *db, const char *request, enum ending ending, bool reset_meanwhile)
{
    static int number;
    char id[32];
    bool reset = false;
    int64_t seen = -1;
    struct err err;

    snprintf(id, sizeof id, "turn_r%d", number++);
    cr_assert_eq(rig_insert(db, id, "web:a", request, false, &err), 0, "%s", err.text);
    cr_assert_eq(rig_start(db, id, &reset, &seen, &err), 0, "%s", err.text);
    if (reset_meanwhile)
        cr_assert_eq(rig_reset(db, "web:a", &err), 0, "%s", err.text);
    cr_assert_eq(rig_end(db, id, ending, seen, &err), 0, "%s", err.text);
    return reset;
}

#define PLAIN "{\"text\":\"x\"}"

Test(reset, holds_until_a_turn_succeeds)
{
    struct rig r = rig_open();
    struct err err;

    cr_assert_eq(rig_reset(r.db, "web:a", &err), -1);
    cr_assert_eq(err.code, ERR_NOT_FOUND);
    cr_assert_eq(rig_put(r.db, "web:a", true, -1, &err), 0);
    cr_assert_not(run_turn(r.db, PLAIN, END_NONE, false));
    cr_assert_eq(rig_reset(r.db, "web:a", &err), 0);
    cr_assert(run_turn(r.db, PLAIN, END_TIMEOUT, false));
    rig_reopen(&r);
    cr_assert(run_turn(r.db, PLAIN, END_EXIT_CODE, false), "survives failure and restart");
    cr_assert(run_turn(r.db, PLAIN, END_NONE, false));
    cr_assert_not(run_turn(r.db, PLAIN, END_NONE, false), "applied once");
    rig_close(&r);
}

Test(reset, asked_for_during_a_turn_applies_to_the_next)
{
    struct rig r = rig_open();
    struct err err;

    cr_assert_eq(rig_put(r.db, "web:a", true, -1, &err), 0);
    cr_assert_eq(rig_reset(r.db, "web:a", &err), 0);
    cr_assert(run_turn(r.db, PLAIN, END_NONE, true));
    CLEANUP(channel_free_p) struct channel *c = rig_channel(r.db, "web:a");
    cr_assert(channel_reset_pending(c));
    cr_assert(run_turn(r.db, PLAIN, END_NONE, false));
    cr_assert_not(run_turn(r.db, PLAIN, END_NONE, false));
    rig_close(&r);
}

Test(reset, in_the_turns_own_body_survives_its_failure)
{
    struct rig r = rig_open();
    struct err err;

    cr_assert_eq(rig_put(r.db, "web:a", true, -1, &err), 0);
    cr_assert(run_turn(r.db, "{\"text\":\"x\",\"reset\":true}", END_TIMEOUT, false));
    cr_assert(run_turn(r.db, PLAIN, END_NONE, false));
    cr_assert_not(run_turn(r.db, "{\"text\":\"x\",\"reset\":false}", END_NONE, false));
    cr_assert(run_turn(r.db, "{\"text\":\"x\",\"reset\":true}", END_NONE, false));
    cr_assert_not(run_turn(r.db, PLAIN, END_NONE, false));
    rig_close(&r);
}

Test(reset, changes_the_etag)
{
    struct rig r = rig_open();
    struct err err;

    cr_assert_eq(rig_put(r.db, "web:a", true, -1, &err), 0);
    cr_assert_eq(rig_reset(r.db, "web:a", &err), 0);
    cr_assert_eq(rig_put(r.db, "web:a", false, 1, &err), -1);
    cr_assert_eq(err.code, ERR_PRECONDITION);
    rig_close(&r);
}
