#include "storage/db.h"

#include "storage/reserve.h"
#include "storage/store.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BATCH       256 /* jobs that share a commit at most */
#define GATHER_FROM 4   /* when so many shared the last one, the next waits for more; few never wait */
#define GATHER_US   200 /* so long; a commit costs about as much */
#define MAX_READERS 16  /* idle read connections kept */

struct request {
    db_job job;
    db_done done;
    void *arg;
    struct err result;
    struct request *next;
};

struct db {
    char *path;
    bool writable;
    _Atomic bool healthy;

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t wake;
    struct request *head, **tail;
    bool closing;
    struct store *idle[MAX_READERS];
    unsigned idle_count;

    pthread_t thread; /* the writer; it alone uses what follows */
    struct store *writer;
    struct reserve reserve;
};

/* -1: the transaction holds what it should not, and must not be committed. */
static int run_job(struct store *st, struct request *r)
{
    struct err err = {0};

    r->result = (struct err){0};
    st->last_failure = 0;
    if (store_again(st, "SAVEPOINT job", &r->result) < 0)
        return 0;
    if (r->job(st, r->arg, &err) < 0) { /* a job that succeeds may have left an error that it has handled */
        r->result = err;
        if (err.code == ERR_NONE)
            err_set(&r->result, ERR_INTERNAL, "a write failed without saying why");
        if (store_exec(st, "ROLLBACK TO job", &err) < 0)
            return -1;
    }
    if (store_again(st, "RELEASE job", &err) < 0) {
        if (r->result.code == ERR_NONE)
            r->result = err;
        return -1;
    }
    return 0;
}

/* One transaction over the batch. 0, or the SQLite code that lost it; then nothing of it is durable. */
static int commit_batch(struct store *st, struct request *batch, struct err *err)
{
    int lost = 0;

    /* Rolling back takes memory too, and may have failed the last time. */
    if (!sqlite3_get_autocommit(st->sqlite) && store_exec(st, "ROLLBACK", err) < 0)
        return st->last_failure ? st->last_failure : SQLITE_ERROR;
    if (store_again(st, "BEGIN IMMEDIATE", err) < 0)
        return st->last_failure ? st->last_failure : SQLITE_ERROR;
    for (struct request *r = batch; r && !lost; r = r->next) {
        bool clean = run_job(st, r) == 0;
        /* FULL and IOERR may have rolled the whole transaction back. */
        if (!clean || st->last_failure == SQLITE_FULL || st->last_failure == SQLITE_IOERR ||
            sqlite3_get_autocommit(st->sqlite)) {
            lost = st->last_failure ? st->last_failure : SQLITE_ERROR;
            *err = r->result;
        }
    }
    if (!lost && store_again(st, "COMMIT", err) < 0)
        lost = st->last_failure ? st->last_failure : SQLITE_ERROR;
    if (lost)
        sqlite3_exec(st->sqlite, "ROLLBACK", NULL, NULL, NULL);
    return lost;
}

static void write_batch(struct db *db, struct request *batch)
{
    struct err err = {0};
    int lost = commit_batch(db->writer, batch, &err);

    /* A full disk is an I/O error to SQLite where its shared memory has to grow. */
    if ((lost == SQLITE_FULL || lost == SQLITE_IOERR) && reserve_release(&db->reserve))
        lost = commit_batch(db->writer, batch, &err);
    db->healthy = lost == 0;
    if (!lost)
        reserve_take(&db->reserve);
    while (batch) {
        struct request *r = batch;
        batch = r->next;
        if (lost && r->result.code == ERR_NONE)
            err_set(&r->result, ERR_DATABASE, "%s", err.text);
        r->done(r->arg, &r->result);
        free(r);
    }
}

static void *writer_main(void *arg)
{
    struct db *db = arg;
    unsigned n = 0;

    for (;;) {
        if (n >= GATHER_FROM)
            usleep(GATHER_US);
        pthread_mutex_lock(&db->lock);
        while (!db->head && !db->closing)
            pthread_cond_wait(&db->wake, &db->lock);
        struct request *batch = db->head, *last = batch;
        if (!batch) {
            pthread_mutex_unlock(&db->lock);
            return NULL;
        }
        for (n = 1; n < BATCH && last->next; n++)
            last = last->next;
        db->head = last->next;
        if (!db->head)
            db->tail = &db->head;
        last->next = NULL;
        pthread_mutex_unlock(&db->lock);
        write_batch(db, batch);
    }
}

static int open_writer(struct db *db, struct err *err)
{
    /* SQLite makes the file with the umask's mode; ours comes first with 0600. */
    int fd = open(db->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return err_set(err, ERR_DATABASE, "%s cannot be opened", db->path);
    close(fd);
    /* Migrating comes first, since the journal mode is kept in the file, which may be somebody else's. */
    if (store_open(db->path, SQLITE_OPEN_READWRITE, &db->writer, err) < 0 ||
        store_migrate(db->writer, err) < 0 || store_exec(db->writer, "PRAGMA journal_mode = WAL", err) < 0 ||
        store_exec(db->writer, "PRAGMA synchronous = FULL", err) < 0 ||
        store_exec(db->writer, "PRAGMA wal_autocheckpoint = 4000", err) < 0 ||
        reserve_init(&db->reserve, db->path, err) < 0)
        return -1;
    reserve_take(&db->reserve);
    if (pthread_create(&db->thread, NULL, writer_main, db) != 0)
        return err_set(err, ERR_SYSTEM, "no thread for the database");
    db->writable = true;
    return 0;
}

static int take_reader(struct db *db, struct store **ret, struct err *err)
{
    struct store *st = NULL;

    pthread_mutex_lock(&db->lock);
    if (db->idle_count > 0)
        st = db->idle[--db->idle_count];
    pthread_mutex_unlock(&db->lock);
    if (!st && store_open(db->path, SQLITE_OPEN_READONLY, &st, err) < 0)
        return -1;
    *ret = st;
    return 0;
}

static void give_reader(struct db *db, struct store *st)
{
    pthread_mutex_lock(&db->lock);
    if (db->idle_count < MAX_READERS) {
        db->idle[db->idle_count++] = st;
        st = NULL;
    }
    pthread_mutex_unlock(&db->lock);
    store_close(st);
}

int db_open(const char *path, enum db_mode mode, struct db **ret, struct err *err)
{
    struct db *db = calloc(1, sizeof *db);
    struct store *st = NULL;

    if (!db || !(db->path = strdup(path))) {
        free(db);
        return err_no_memory(err);
    }
    db->tail = &db->head;
    db->healthy = true;
    pthread_mutex_init(&db->lock, NULL);
    pthread_cond_init(&db->wake, NULL);
    int rc = mode == DB_WRITE ? open_writer(db, err) : take_reader(db, &st, err);
    if (rc == 0 && st) {
        rc = store_expect_version(st, err);
        give_reader(db, st);
    }
    if (rc < 0) {
        err_wrap(err, "state %s", path);
        db_close(db);
        return -1;
    }
    *ret = db;
    return 0;
}

void db_close(struct db *db)
{
    if (!db)
        return;
    if (db->writable) {
        pthread_mutex_lock(&db->lock);
        db->closing = true;
        pthread_cond_signal(&db->wake);
        pthread_mutex_unlock(&db->lock);
        pthread_join(db->thread, NULL);
    }
    while (db->idle_count > 0)
        store_close(db->idle[--db->idle_count]);
    store_close(db->writer); /* last, so that the log is folded into the file */
    reserve_done(&db->reserve);
    pthread_cond_destroy(&db->wake);
    pthread_mutex_destroy(&db->lock);
    free(db->path);
    free(db);
}

int db_submit(struct db *db, db_job job, db_done done, void *arg, struct err *err)
{
    struct request *r = calloc(1, sizeof *r);

    if (!r)
        return err_no_memory(err);
    *r = (struct request){.job = job, .done = done, .arg = arg};
    pthread_mutex_lock(&db->lock);
    bool open = db->writable && !db->closing;
    if (open) {
        *db->tail = r;
        db->tail = &r->next;
        pthread_cond_signal(&db->wake);
    }
    pthread_mutex_unlock(&db->lock);
    if (open)
        return 0;
    free(r);
    return err_set(err, ERR_DATABASE, "the state is not open for writing");
}

struct waiter {
    db_job job;
    void *arg;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool finished;
    struct err result;
};

static int waiter_job(struct store *st, void *arg, struct err *err)
{
    struct waiter *w = arg;

    return w->job(st, w->arg, err);
}

static void waiter_done(void *arg, const struct err *result)
{
    struct waiter *w = arg;

    pthread_mutex_lock(&w->lock);
    w->result = *result;
    w->finished = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

int db_write(struct db *db, db_job job, void *arg, struct err *err)
{
    struct waiter w = {
        .job = job, .arg = arg, .lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

    if (db_submit(db, waiter_job, waiter_done, &w, err) < 0)
        return -1;
    pthread_mutex_lock(&w.lock);
    while (!w.finished)
        pthread_cond_wait(&w.wake, &w.lock);
    pthread_mutex_unlock(&w.lock);
    if (w.result.code == ERR_NONE)
        return 0;
    *err = w.result;
    return -1;
}

int db_read(struct db *db, db_job job, void *arg, struct err *err)
{
    struct store *st = NULL;

    if (take_reader(db, &st, err) < 0)
        return -1;
    int rc = store_again(st, "BEGIN", err);
    if (rc == 0) {
        struct err ignored;
        rc = job(st, arg, err);
        if (store_again(st, "COMMIT", &ignored) < 0)
            st->last_failure = 0;
    }
    if (sqlite3_get_autocommit(st->sqlite))
        give_reader(db, st);
    else /* no memory for the COMMIT: it would keep its snapshot, and begin no other */
        store_close(st);
    return rc;
}

static int vacuum_into(struct store *st, const char *path, struct err *err)
{
    CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;

    if (stmt_get(st, "VACUUM INTO ?", &stmt, err) < 0 || stmt_bind(st, stmt, err, "s", path) < 0)
        return -1;
    return stmt_run(st, stmt, err);
}

int db_backup(struct db *db, const char *path, struct err *err)
{
    struct store *st = NULL;

    if (take_reader(db, &st, err) < 0)
        return -1;
    sqlite3_limit(st->sqlite, SQLITE_LIMIT_ATTACHED, 1); /* the copy is attached meanwhile */
    int rc = vacuum_into(st, path, err);
    sqlite3_limit(st->sqlite, SQLITE_LIMIT_ATTACHED, 0);
    give_reader(db, st);
    return rc;
}

bool db_healthy(const struct db *db)
{
    return db->healthy;
}

/* Changes nothing, but reaches the disk. */
static int touch_job(struct store *st, void *arg, struct err *err)
{
    (void)arg;
    return store_exec(st, "UPDATE meta SET value = value WHERE name = 'installation'", err);
}

static void touch_done(void *arg, const struct err *result)
{
    (void)arg;
    (void)result;
}

void db_recheck(struct db *db)
{
    struct err err;

    if (!db->healthy && db_submit(db, touch_job, touch_done, NULL, &err) < 0)
        return; /* the next try is near */
}

static int check_integrity(struct store *st, void *arg, struct err *err)
{
    const bool *whole = arg;
    const char *const checks[] = {*whole ? "PRAGMA integrity_check(1)" : "PRAGMA quick_check(1)",
                                  "PRAGMA foreign_key_check"};

    for (size_t i = 0; i < ARRAY_LEN(checks); i++) {
        CLEANUP(stmt_done) sqlite3_stmt *stmt = NULL;
        if (stmt_get(st, checks[i], &stmt, err) < 0)
            return -1;
        int rc = stmt_step(st, stmt, err);
        if (rc < 0)
            return -1;
        const char *found = rc == 1 ? (const char *)sqlite3_column_text(stmt, 0) : "ok";
        if (!found || strcmp(found, "ok") != 0)
            return err_set(err, ERR_DATABASE, "the state is damaged: %s", found ? found : "unreadable");
    }
    return 0;
}

int db_integrity(struct db *db, bool whole, struct err *err)
{
    return db_read(db, check_integrity, &whole, err);
}
