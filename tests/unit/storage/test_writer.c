#include "rig.h"

#include "base/clock.h"
#include "base/fs.h"
#include "storage/reserve.h"
#include "storage/store.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mount.h>

#define THREADS 64
#define ROUNDS  40

static int add_event(struct store *st, const char *name, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;

    if (stmt_get(st, "INSERT INTO meta (name, value) VALUES (?, 'x')", &stmt, err) < 0 ||
        stmt_bind(st, stmt, err, "s", name) < 0)
        return -1;
    return stmt_run(st, stmt, err);
}

struct job {
    char name[40];
    bool fails; /* after it has written */
    _Atomic unsigned *order;
    unsigned place;
    struct err result;
};

static int job_run(struct store *st, void *arg, struct err *err)
{
    struct job *j = arg;

    if (add_event(st, j->name, err) < 0)
        return -1;
    return j->fails ? err_set(err, ERR_GONE, "as asked") : 0;
}

static void job_done(void *arg, const struct err *result)
{
    struct job *j = arg;

    j->result = *result;
    j->place = ++*j->order;
}

static void *many_writes(void *arg)
{
    struct db *db = arg;
    static _Atomic unsigned number;

    for (int i = 0; i < ROUNDS; i++) {
        struct job j = {.fails = i % 4 == 3};
        struct err err = {0};
        snprintf(j.name, sizeof j.name, "%s-%u", j.fails ? "bad" : "good", ++number);
        int rc = db_write(db, job_run, &j, &err);
        if (rc != (j.fails ? -1 : 0) || (j.fails && err.code != ERR_GONE))
            return "wrong result";
    }
    return NULL;
}

static int read_count(struct store *st, void *arg, struct err *err)
{
    sqlite3_stmt *stmt = NULL;

    if (sqlite3_prepare_v2(st->sqlite, "SELECT (SELECT count(*) FROM meta), (SELECT count(*) FROM meta)", -1,
                           &stmt, NULL) != SQLITE_OK)
        return store_fail(st, err, "count");
    int rc = stmt_step(st, stmt, err);
    ((int64_t *)arg)[0] = sqlite3_column_int64(stmt, 0);
    ((int64_t *)arg)[1] = sqlite3_column_int64(stmt, 1);
    sqlite3_finalize(stmt);
    return rc == 1 ? 0 : -1;
}

static void *many_reads(void *arg)
{
    int64_t last = 0, now[2];
    struct err err;

    for (int i = 0; i < 200; i++) {
        if (db_read(arg, read_count, now, &err) < 0 || now[0] != now[1] || now[0] < last)
            return "a reader saw something else";
        last = now[0];
    }
    return NULL;
}

Test(writer, sixty_four_threads_lose_nothing, .timeout = 60)
{
    struct rig r = rig_open();
    pthread_t threads[THREADS], readers[8];
    void *result;
    char want[16];

    for (size_t i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, many_writes, r.db), 0);
    for (size_t i = 0; i < ARRAY_LEN(readers); i++)
        cr_assert_eq(pthread_create(&readers[i], NULL, many_reads, r.db), 0);
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &result);
        cr_assert_null(result, "%s", (char *)result);
    }
    for (size_t i = 0; i < ARRAY_LEN(readers); i++) {
        pthread_join(readers[i], &result);
        cr_assert_null(result, "%s", (char *)result);
    }
    rig_reopen(&r);
    snprintf(want, sizeof want, "%d", THREADS * ROUNDS * 3 / 4);
    cr_assert_str_eq(rig_ask(r.db, "SELECT count(*) FROM meta WHERE name LIKE 'good%'"), want);
    cr_assert_str_eq(rig_ask(r.db, "SELECT count(*) FROM meta WHERE name LIKE 'bad%'"), "0");
    cr_assert(db_healthy(r.db));
    rig_close(&r);
}

Test(writer, done_is_called_in_order_and_close_finishes_all)
{
    struct rig r = rig_open();
    static struct job jobs[2000];
    _Atomic unsigned order = 0;
    struct err err;

    for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
        jobs[i] = (struct job){.fails = i % 7 == 0, .order = &order};
        snprintf(jobs[i].name, sizeof jobs[i].name, "job-%zu", i);
        cr_assert_eq(db_submit(r.db, job_run, job_done, &jobs[i], &err), 0, "%s", err.text);
    }
    rig_reopen(&r);
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
        cr_assert_eq(jobs[i].place, i + 1);
        cr_assert_eq(jobs[i].result.code, jobs[i].fails ? ERR_GONE : ERR_NONE, "%s", jobs[i].result.text);
    }
    cr_assert_str_eq(rig_ask(r.db, "SELECT count(*) FROM meta WHERE name LIKE 'job-%'"), "1714");
    rig_close(&r);
}

static int constraint_then_success(struct store *st, void *arg, struct err *err)
{
    if (add_event(st, "twice", err) < 0)
        return -1;
    cr_assert_eq(add_event(st, "twice", err), -1, "a constraint");
    return add_event(st, arg, err); /* err still holds the old failure */
}

Test(writer, a_job_is_judged_by_its_return_alone)
{
    struct rig r = rig_open();
    char name[] = "after";
    struct err err;

    cr_assert_eq(db_write(r.db, constraint_then_success, name, &err), 0, "%s", err.text);
    cr_assert_str_eq(rig_ask(r.db, "SELECT count(*) FROM meta WHERE name IN ('twice', 'after')"), "2");
    cr_assert(db_healthy(r.db));
    rig_close(&r);
}

static int fails_silently(struct store *st, void *arg, struct err *err)
{
    (void)err;
    (void)st;
    (void)arg;
    return -1;
}

Test(writer, a_failure_without_words_is_one)
{
    struct rig r = rig_open();
    struct err err = {0};

    cr_assert_eq(db_write(r.db, fails_silently, NULL, &err), -1);
    cr_assert_eq(err.code, ERR_INTERNAL);
    rig_close(&r);
}

struct late {
    struct db *db;
    struct job job;
    int rc;
    struct err err;
};

static void submit_again(void *arg, const struct err *result)
{
    struct late *l = arg;
    struct job *j = &l->job;
    int64_t deadline = clock_mono_ms() + 5000;

    (void)result;
    /* The first submission after db_close has begun is refused; before, they are taken and finished. */
    while ((l->rc = db_submit(l->db, job_run, job_done, j, &l->err)) == 0 && clock_mono_ms() < deadline)
        clock_sleep_ms(1);
}

static int nothing(struct store *st, void *arg, struct err *err)
{
    (void)st;
    (void)arg;
    (void)err;
    return 0;
}

Test(writer, nothing_is_taken_after_close_began)
{
    struct rig r = rig_open();
    _Atomic unsigned order = 0;
    struct late l = {.db = r.db, .job = {.name = "late", .order = &order}};
    struct err err;

    cr_assert_eq(db_submit(r.db, nothing, submit_again, &l, &err), 0, "%s", err.text);
    db_close(STEAL(r.db));
    cr_assert_eq(l.rc, -1);
    cr_assert_eq(l.err.code, ERR_DATABASE, "%s", l.err.text);
    rig_close(&r);
}

/* A child that writes numbered rows and tells of each that was acknowledged, until it is killed. */
static void write_until_killed(const char *path, int out)
{
    struct db *db = NULL;
    struct err err;

    if (db_open(path, DB_WRITE, &db, &err) < 0)
        _exit(1);
    for (uint32_t i = 0; i < 1000000; i++) {
        struct job j = {0};
        snprintf(j.name, sizeof j.name, "row-%u", i);
        if (db_write(db, job_run, &j, &err) < 0 || write(out, &i, sizeof i) != sizeof i)
            _exit(2);
    }
    _exit(3);
}

Test(crash, what_was_acknowledged_is_there_after_a_kill, .timeout = 60)
{
    struct rig r = rig_open();
    uint32_t last = 0, i;
    struct err err;

    for (int round = 0; round < 5; round++) {
        int fds[2];
        db_close(STEAL(r.db));
        if (round > 0) {
            cr_assert_eq(db_open(r.path, DB_WRITE, &r.db, &err), 0, "%s", err.text);
            rig_sql(r.db, "DELETE FROM meta WHERE name LIKE 'row-%'");
            db_close(STEAL(r.db));
        }
        cr_assert_eq(pipe(fds), 0);
        pid_t pid = fork();
        if (pid == 0) {
            close(fds[0]);
            write_until_killed(r.path, fds[1]);
        }
        close(fds[1]);
        for (int got = 0; got < 20 * (round + 1); got++)
            cr_assert_eq(read(fds[0], &last, sizeof last), sizeof last, "the writer ended");
        cr_assert_eq(kill(pid, SIGKILL), 0);
        while (read(fds[0], &i, sizeof i) == sizeof i)
            last = i;
        cr_assert_eq(waitpid(pid, NULL, 0), pid);
        close(fds[0]);
        cr_assert_eq(db_open(r.path, DB_WRITE, &r.db, &err), 0, "%s", err.text);
        cr_assert_eq(db_integrity(r.db, true, &err), 0, "%s", err.text);
        char sql[128], want[16];
        snprintf(sql, sizeof sql,
                 "SELECT count(*) FROM meta WHERE name LIKE 'row-%%' AND "
                 "cast(substr(name, 5) AS INTEGER) <= %u",
                 last);
        snprintf(want, sizeof want, "%u", last + 1);
        cr_assert_str_eq(rig_ask(r.db, sql), want, "round %d", round);
    }
    rig_close(&r);
}

static int write_kilobytes(struct store *st, void *arg, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;

    (void)arg;
    if (stmt_get(st, "INSERT INTO meta SELECT hex(randomblob(16)), hex(randomblob(50000))", &stmt, err) < 0)
        return -1;
    return stmt_run(st, stmt, err);
}

/* Fills the disk below `dir` to the last byte. */
static void fill(const char *dir, const char *name)
{
    CLEANUP(free_str) char *path = scratch_path(dir, name);
    char block[4096] = {1};
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    cr_assert_geq(fd, 0);
    while (write(fd, block, sizeof block) > 0)
        ;
    while (write(fd, block, 1) > 0)
        ;
    close(fd);
}

static void write_until_full(struct db *db, struct err *err)
{
    int n = 0;

    while (db_write(db, write_kilobytes, NULL, err) == 0)
        cr_assert_lt(++n, 2000, "the disk never got full");
    cr_assert_eq(err->code, ERR_DATABASE, "%s", err->text);
}

Test(disk_full, is_told_the_reserve_given_up_and_it_recovers, .timeout = 60)
{
    char *dir = scratch_dir();
    struct db *db = NULL;
    struct err err = {0};

    if (getuid() != 0)
        cr_skip("mounting a small disk needs root");
    /* In a mount namespace of this test's own, which ends with it. */
    cr_assert_eq(unshare(CLONE_NEWNS), 0);
    cr_assert_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    cr_assert_eq(mount("tmpfs", dir, "tmpfs", 0, "size=32m,mode=0700"), 0);
    char *path = scratch_path(dir, "state.db"), *reserve = scratch_path(dir, "state.db.reserve");
    char *filler = scratch_path(dir, "filler");
    /* The reserve of an earlier run, when the disk had room. */
    int fd = open(reserve, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    cr_assert_eq(posix_fallocate(fd, 0, RESERVE_BYTES), 0);
    close(fd);
    cr_assert_eq(db_open(path, DB_WRITE, &db, &err), 0, "%s", err.text);
    cr_assert_eq(db_write(db, write_kilobytes, NULL, &err), 0, "%s", err.text);
    cr_assert_eq(access(reserve, F_OK), 0, "kept while there is room");
    fill(dir, "filler");
    cr_assert_eq(access(reserve, F_OK), 0);
    for (int i = 0; i < 10; i++)
        cr_assert_eq(db_write(db, write_kilobytes, NULL, &err), 0, "out of the reserve: %s", err.text);
    cr_assert(db_healthy(db));
    cr_assert_neq(access(reserve, F_OK), 0, "it was given up");
    write_until_full(db, &err);
    cr_assert_not(db_healthy(db));
    struct job small = {.name = "small"};
    (void)!db_write(db, job_run, &small, &err);
    cr_assert_eq(unlink(filler), 0);
    cr_assert_eq(db_write(db, write_kilobytes, NULL, &err), 0, "recovers: %s", err.text);
    cr_assert(db_healthy(db));
    cr_assert_eq(db_integrity(db, true, &err), 0, "%s", err.text);
    db_close(db);
    cr_assert_eq(umount(dir), 0);
    free(filler);
    free(reserve);
    free(path);
    scratch_remove(dir);
}

Test(disk_full, the_reserve_is_taken_where_there_is_room)
{
    char *dir = scratch_dir(), *path = scratch_path(dir, "state.db"),
         *file = scratch_path(dir, "state.db.reserve");
    struct reserve r;
    struct err err;
    struct stat st;

    if (!fs_has_room(dir))
        cr_skip("this disk is below the floor");
    cr_assert_eq(reserve_init(&r, path, &err), 0);
    cr_assert_not(reserve_release(&r), "nothing to give up yet");
    reserve_take(&r);
    cr_assert(r.held);
    cr_assert_eq(stat(file, &st), 0);
    cr_assert(st.st_size == RESERVE_BYTES && (st.st_mode & 0777) == 0600);
    cr_assert_geq(st.st_blocks * 512, RESERVE_BYTES);
    cr_assert(reserve_release(&r));
    cr_assert_neq(access(file, F_OK), 0);
    reserve_take(&r);
    reserve_done(&r);
    cr_assert_eq(access(file, F_OK), 0, "kept for the next start");
    free(path);
    free(file);
    scratch_remove(dir);
}
