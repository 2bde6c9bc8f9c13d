#include "rig.h"

#include "base/buf.h"
#include "base/fs.h"
#include "storage/lock.h"
#include "storage/store.h"

#include <fcntl.h>
#include <signal.h>

static void refused(const char *path, enum db_mode mode, const char *part)
{
    struct db *db = NULL;
    struct err err = {0};

    cr_assert_eq(db_open(path, mode, &db, &err), -1, "%s", path);
    cr_assert_null(db);
    cr_assert_eq(err.code, ERR_DATABASE, "%s", err.text);
    cr_assert(strstr(err.text, part), "%s", err.text);
    cr_assert(strstr(err.text, path), "%s", err.text);
}

/* Makes a database by hand, in rollback mode. */
static void make_raw(const char *path, const char *sql)
{
    sqlite3 *raw = NULL;

    cr_assert_eq(sqlite3_open(path, &raw), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(raw, sql, NULL, NULL, NULL), SQLITE_OK, "%s", sqlite3_errmsg(raw));
    cr_assert_eq(sqlite3_close(raw), SQLITE_OK);
}

static void assert_same_bytes(const char *path, const struct buf *before)
{
    struct buf after = BUF_INIT(1 << 20);
    struct err err;

    cr_assert_eq(fs_read(path, &after, &err), 0, "%s", err.text);
    cr_assert_eq(after.len, before->len);
    cr_assert_eq(memcmp(after.data, before->data, after.len), 0, "%s was changed", path);
    buf_free(&after);
}

Test(open, a_fresh_file_is_private_and_keeps_its_installation)
{
    struct rig r = rig_open();
    struct stat st;
    char first[64];

    cr_assert_eq(stat(r.path, &st), 0);
    cr_assert_eq(st.st_mode & 0777, 0600);
    cr_assert_str_eq(rig_ask(r.db, "PRAGMA journal_mode"), "wal");
    snprintf(first, sizeof first, "%s", rig_ask(r.db, "SELECT value FROM meta WHERE name = 'installation'"));
    cr_assert_eq(strspn(first, "0123456789abcdef"), 32);
    rig_reopen(&r);
    cr_assert_str_eq(rig_ask(r.db, "SELECT value FROM meta WHERE name = 'installation'"), first);
    rig_close(&r);
}

static int ask_writer(struct store *st, void *arg, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;

    if (stmt_get(st,
                 "SELECT (SELECT synchronous FROM pragma_synchronous) * 10 + foreign_keys FROM "
                 "pragma_foreign_keys",
                 &stmt, err) < 0 ||
        stmt_step(st, stmt, err) < 0)
        return -1;
    *(int64_t *)arg = sqlite3_column_int64(stmt, 0);
    return 0;
}

/* A kill of the process cannot tell whether commits reach the disk, so the setting is asked for. */
Test(open, commits_reach_the_disk_and_references_are_kept)
{
    struct rig r = rig_open();
    int64_t got = 0;
    struct err err;

    cr_assert_eq(db_write(r.db, ask_writer, &got, &err), 0, "%s", err.text);
    cr_assert_eq(got, 21, "synchronous FULL (2), foreign keys on (1): %d", (int)got);
    rig_close(&r);
}

static int first_start(struct store *st, void *arg, struct err *err)
{
    return meta_first_start(st, arg, err);
}

Test(open, the_first_start_is_told_once)
{
    struct rig r = rig_open();
    struct err err;
    bool first = false;

    cr_assert_eq(db_write(r.db, first_start, &first, &err), 0, "%s", err.text);
    cr_assert(first);
    cr_assert_eq(db_write(r.db, first_start, &first, &err), 0, "%s", err.text);
    cr_assert_not(first);
    rig_reopen(&r);
    cr_assert_eq(db_write(r.db, first_start, &first, &err), 0, "%s", err.text);
    cr_assert_not(first);
    rig_close(&r);
}

Test(open, a_newer_version_is_refused_and_not_touched)
{
    struct rig r = rig_open();
    struct buf before = BUF_INIT(1 << 20);
    struct err err;

    db_close(r.db);
    r.db = NULL;
    make_raw(r.path, "PRAGMA user_version = 99");
    cr_assert_eq(fs_read(r.path, &before, &err), 0);
    refused(r.path, DB_WRITE, "version 99");
    refused(r.path, DB_READ, "version 99");
    assert_same_bytes(r.path, &before);
    buf_free(&before);
    rig_close(&r);
}

Test(open, a_version_below_zero_is_refused)
{
    struct rig r = rig_open();

    db_close(r.db);
    r.db = NULL;
    make_raw(r.path, "PRAGMA user_version = -5");
    refused(r.path, DB_WRITE, "version -5");
    refused(r.path, DB_READ, "version -5");
    rig_close(&r);
}

Test(open, a_foreign_database_is_refused_and_not_touched)
{
    char *dir = scratch_dir(), *path = scratch_path(dir, "other.db");
    struct buf before = BUF_INIT(1 << 20);
    struct err err;

    make_raw(path, "CREATE TABLE people (name TEXT)");
    cr_assert_eq(fs_read(path, &before, &err), 0);
    refused(path, DB_WRITE, "not a state database");
    refused(path, DB_READ, "not a state database");
    assert_same_bytes(path, &before);
    make_raw(path, "PRAGMA application_id = 1234");
    refused(path, DB_WRITE, "not a state database");
    buf_free(&before);
    free(path);
    scratch_remove(dir);
}

Test(open, what_is_no_database_is_refused_and_not_touched)
{
    char *dir = scratch_dir(), *path = scratch_path(dir, "text");
    struct buf before = BUF_INIT(1 << 20);
    struct err err;
    FILE *file = fopen(path, "w");

    for (int i = 0; i < 1000; i++)
        fputs("this is no database\n", file);
    fclose(file);
    cr_assert_eq(fs_read(path, &before, &err), 0);
    refused(path, DB_WRITE, "not a database");
    refused(path, DB_READ, "not a database");
    assert_same_bytes(path, &before);
    buf_free(&before);
    refused(dir, DB_WRITE, "cannot be opened");
    free(path);
    scratch_remove(dir);
}

Test(open, a_symlink_is_not_followed)
{
    struct rig r = rig_open();
    char *link = scratch_path(r.dir, "link.db");

    cr_assert_eq(symlink(r.path, link), 0);
    refused(link, DB_WRITE, "cannot be opened");
    refused(link, DB_READ, "unable to open");
    free(link);
    rig_close(&r);
}

static int count_channels(struct store *st, void *arg, struct err *err)
{
    struct channel *c = NULL;

    (void)arg;
    if (channels_get(st, "web:lobby", &c, err) < 0)
        return -1;
    channel_free(c);
    return 0;
}

Test(open, readers_need_the_file_and_cannot_write)
{
    struct rig r = rig_open();
    struct db *reader = NULL;
    struct err err;
    char *missing = scratch_path(r.dir, "missing.db");

    refused(missing, DB_READ, "unable to open");
    cr_assert_neq(access(missing, F_OK), 0, "nothing is made");
    cr_assert_eq(rig_put(r.db, "web:lobby", true, -1, &err), 0, "%s", err.text);
    cr_assert_eq(db_open(r.path, DB_READ, &reader, &err), 0, "beside a writer: %s", err.text);
    cr_assert_eq(db_read(reader, count_channels, NULL, &err), 0, "%s", err.text);
    cr_assert_eq(rig_put(reader, "web:x", true, -1, &err), -1);
    cr_assert_eq(err.code, ERR_DATABASE, "%s", err.text);
    db_close(reader);
    db_close(STEAL(r.db));
    cr_assert_eq(db_open(r.path, DB_READ, &reader, &err), 0, "without a writer: %s", err.text);
    cr_assert_eq(db_read(reader, count_channels, NULL, &err), 0, "%s", err.text);
    db_close(reader);
    free(missing);
    rig_close(&r);
}

Test(open, damage_is_found)
{
    struct rig r = rig_open();
    struct db *db = NULL;
    struct err err;

    cr_assert_eq(db_integrity(r.db, true, &err), 0, "%s", err.text);
    for (int i = 0; i < 300; i++) {
        char key[32];
        snprintf(key, sizeof key, "web:%d", i);
        cr_assert_eq(rig_put(r.db, key, true, -1, &err), 0, "%s", err.text);
    }
    rig_sql(r.db, "PRAGMA defer_foreign_keys = ON; INSERT INTO meta VALUES ('x', 'y')");
    db_close(STEAL(r.db));
    make_raw(r.path, "PRAGMA journal_mode = DELETE; PRAGMA foreign_keys = OFF;"
                     "INSERT INTO events VALUES (4711, 1, 'lost', 0, NULL)");
    cr_assert_eq(db_open(r.path, DB_WRITE, &db, &err), 0, "%s", err.text);
    cr_assert_eq(db_integrity(db, true, &err), -1);
    cr_assert_eq(err.code, ERR_DATABASE);
    cr_assert(strstr(err.text, "damaged"), "%s", err.text);
    db_close(STEAL(db));
    /* Overwrite the inside of a page. */
    int fd = open(r.path, O_WRONLY);
    char noise[4096];
    struct stat st;
    memset(noise, 0xA5, sizeof noise);
    cr_assert_eq(fstat(fd, &st), 0);
    for (off_t at = 4096 * 3; at < st.st_size; at += 4096)
        cr_assert_eq(pwrite(fd, noise, 2000, at + 100), 2000);
    close(fd);
    if (db_open(r.path, DB_WRITE, &db, &err) == 0) {
        cr_assert_eq(db_integrity(db, true, &err), -1);
        db_close(db);
    }
    cr_assert_eq(err.code, ERR_DATABASE, "%s", err.text);
    rig_close(&r);
}

/* A child that takes the lock, says so, and waits to be killed. */
static pid_t hold_lock(const char *path, int *ready)
{
    int fds[2];

    cr_assert_eq(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct err err;
        char ok = state_lock(path, &err) >= 0;
        (void)!write(fds[1], &ok, 1);
        for (;;)
            pause();
    }
    close(fds[1]);
    *ready = fds[0];
    return pid;
}

Test(lock, a_second_process_is_refused_until_the_first_is_gone)
{
    char *dir = scratch_dir(), *path = scratch_path(dir, "state.db"), ok = 0;
    struct err err;
    int ready;
    pid_t pid = hold_lock(path, &ready);

    cr_assert_eq(read(ready, &ok, 1), 1);
    cr_assert(ok);
    cr_assert_eq(state_lock(path, &err), -1);
    cr_assert_eq(err.code, ERR_CONFLICT, "%s", err.text);
    cr_assert_eq(kill(pid, SIGKILL), 0);
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
    int fd = state_lock(path, &err);
    cr_assert_geq(fd, 0, "%s", err.text);
    cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    cr_assert_eq(state_lock(path, &err), -1, "also in this process");
    close(fd);
    fd = state_lock(path, &err);
    cr_assert_geq(fd, 0, "%s", err.text);
    close(fd);
    close(ready);
    free(path);
    scratch_remove(dir);
}

Test(lock, is_no_symlink)
{
    char *dir = scratch_dir(), *path = scratch_path(dir, "state.db"),
         *lock = scratch_path(dir, "state.db.lock");
    struct err err;

    cr_assert_eq(symlink("/dev/null", lock), 0);
    cr_assert_eq(state_lock(path, &err), -1);
    cr_assert_eq(err.code, ERR_SYSTEM, "%s", err.text);
    free(lock);
    free(path);
    scratch_remove(dir);
}
