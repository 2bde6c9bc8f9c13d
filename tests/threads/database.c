/* Group commit: waiting and unwaiting writers beside readers; what was acknowledged is there, what failed is
 * not. */
#include "base/secret.h"
#include "storage/channels.h"
#include "storage/db.h"

#include "check.h"

#include <stdatomic.h>
#include <string.h>

#define WRITERS 8
#define READERS 3
#define ROUNDS  60

static struct db *db;
static _Atomic unsigned number, good, submitted, done_count;
static _Atomic bool finished;

struct job {
    char key[32];
    bool fails;
};

static int put(struct store *st, void *arg, struct err *err)
{
    struct job *j = arg;

    if (channels_put(st, j->key, true, 0, 1, err) < 0)
        return -1;
    return j->fails ? err_set(err, ERR_GONE, "as asked") : 0;
}

static void done(void *arg, const struct err *result)
{
    struct job *j = arg;

    CHECK(result->code == (j->fails ? ERR_GONE : ERR_NONE));
    done_count++;
    free(j);
}

static struct job make(void)
{
    struct job j;
    unsigned n = number++;

    j.fails = n % 5 == 0;
    snprintf(j.key, sizeof j.key, "web:%u", n);
    good += !j.fails;
    return j;
}

static void *write_some(void *arg)
{
    struct err err;

    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        struct job j = make(), *later = malloc(sizeof *later);
        CHECK(db_write(db, put, &j, &err) == (j.fails ? -1 : 0));
        CHECK(later);
        *later = make();
        submitted++;
        CHECK(db_submit(db, put, done, later, &err) == 0);
    }
    return NULL;
}

static int count_one(const struct channel *c, void *arg, struct err *err)
{
    (void)err;
    CHECK(c->enabled && c->version == 1);
    ++*(unsigned *)arg;
    return 0;
}

static int count_all(struct store *st, void *arg, struct err *err)
{
    return channels_each(st, "", count_one, arg, err);
}

static void *read_some(void *arg)
{
    unsigned last = 0;
    struct err err;

    (void)arg;
    while (!finished) {
        unsigned now = 0;
        CHECK(db_read(db, count_all, &now, &err) == 0);
        CHECK(now >= last && db_healthy(db));
        last = now;
    }
    return NULL;
}

int main(void)
{
    pthread_t writers[WRITERS], readers[READERS];
    char dir[] = "/tmp/clo-t-XXXXXX", path[64], other[80];
    unsigned count = 0;
    struct err err;

    CHECK(mkdtemp(dir) && secret_init(&err) == 0);
    snprintf(path, sizeof path, "%s/state.db", dir);
    CHECK(db_open(path, DB_WRITE, &db, &err) == 0);
    start_threads(readers, READERS, read_some, NULL);
    start_threads(writers, WRITERS, write_some, NULL);
    join_threads(writers, WRITERS);
    finished = true;
    join_threads(readers, READERS);
    db_close(db);
    CHECK(done_count == submitted);
    CHECK(db_open(path, DB_READ, &db, &err) == 0);
    CHECK(db_read(db, count_all, &count, &err) == 0 && count == good);
    CHECK(db_integrity(db, true, &err) == 0);
    db_close(db);
    static const char *const tails[] = {"", "-wal", "-shm", ".reserve"};
    for (unsigned i = 0; i < ARRAY_LEN(tails); i++) {
        snprintf(other, sizeof other, "%s%s", path, tails[i]);
        unlink(other);
    }
    CHECK(rmdir(dir) == 0);
    printf("database: %u rows\n", count);
    return 0;
}
