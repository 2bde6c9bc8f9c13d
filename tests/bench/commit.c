/* bench/commit.c: two rates of durable writes with 64 threads, to be compared in one run.
 *
 *   bench_commit machine FILE SECONDS             what the machine can do: one row of 256 bytes each, SQLite
 * in WAL mode with synchronous=FULL, threads that share commits bench_commit submit PORT KEY CHANNEL SECONDS
 * POST /v1/turns with Prefer: respond-async, one connection a thread, in the channels CHANNEL0 to CHANNEL63
 *
 * Prints writes a second. */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define THREADS    64
#define BATCH      256 /* as storage/db.c */
#define HEAD_MAX   4096
#define ANSWER_MAX 16384

static atomic_bool over; /* for the clients */

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The machine: a writer commits what waits, as one transaction. */

struct place {
    pthread_cond_t wake;
    bool done;
    struct place *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static struct place *head, **tail = &head;
static bool no_more; /* for the writer: all clients have ended; under lock */

static void run_sql(sqlite3 *db, const char *sql)
{
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        fprintf(stderr, "%s: %s\n", sql, sqlite3_errmsg(db));
        exit(1);
    }
}

static struct place *take_batch(void)
{
    pthread_mutex_lock(&lock);
    while (!head && !no_more)
        pthread_cond_wait(&work, &lock);
    struct place *batch = head, *last = batch;
    for (unsigned n = 1; last && n < BATCH && last->next; n++)
        last = last->next;
    head = last ? last->next : NULL;
    if (!head)
        tail = &head;
    if (last)
        last->next = NULL;
    pthread_mutex_unlock(&lock);
    return batch;
}

static void prepare(sqlite3 *db, const char *sql, sqlite3_stmt **ret)
{
    if (sqlite3_prepare_v2(db, sql, -1, ret, NULL) != SQLITE_OK) {
        fprintf(stderr, "%s: %s\n", sql, sqlite3_errmsg(db));
        exit(1);
    }
}

static void run_once(sqlite3_stmt *stmt)
{
    if (sqlite3_step(stmt) != SQLITE_DONE) {
        fprintf(stderr, "%s\n", sqlite3_errmsg(sqlite3_db_handle(stmt)));
        exit(1);
    }
    sqlite3_reset(stmt);
}

static const char *state; /* NULL: plain rows */
static sqlite3_stmt *insert, *event;

static void make_tables(sqlite3 *db)
{
    sqlite3_stmt *list = NULL;
    sqlite3 *from = NULL;

    if (!state) {
        run_sql(db, "CREATE TABLE t (n INTEGER PRIMARY KEY, d BLOB)");
        prepare(db, "INSERT INTO t (d) VALUES (zeroblob(256))", &insert);
        return;
    }
    if (sqlite3_open_v2(state, &from, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK)
        fail(state);
    prepare(from,
            "SELECT sql FROM sqlite_schema WHERE tbl_name IN ('turns', 'events') AND sql IS NOT NULL ORDER "
            "BY rowid",
            &list);
    while (sqlite3_step(list) == SQLITE_ROW)
        run_sql(db, (const char *)sqlite3_column_text(list, 0));
    sqlite3_finalize(list);
    sqlite3_close(from);
    prepare(db,
            "INSERT INTO turns (id, channel, key_id, status, request, created_ms, traceparent, speaker_id, "
            "accept_ms) "
            "VALUES (printf('turn_%012x', unixepoch() * 1000) || lower(hex(randomblob(10))), 'bench:c' || "
            "abs(random() % 64), '0123456789abcdef', "
            "'queued', '{\"speaker\":{\"id\":\"u1\",\"name\":\"Ada\"},\"text\":\"hello\"}', 1780000000000, "
            "'00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', 'u1', 0)",
            &insert);
    prepare(db,
            "INSERT INTO events (turn, n, type, at_ms, data) "
            "VALUES (last_insert_rowid(), 1, 'queued', 1780000000000, '{\"position\":0}')",
            &event);
}

static void *write_batches(void *arg)
{
    sqlite3 *db = NULL;
    struct place *batch;

    if (sqlite3_open(arg, &db) != SQLITE_OK)
        fail(arg);
    run_sql(db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL");
    make_tables(db);
    while ((batch = take_batch())) {
        run_sql(db, "BEGIN IMMEDIATE");
        for (struct place *p = batch; p; p = p->next) {
            run_once(insert);
            if (event)
                run_once(event);
        }
        run_sql(db, "COMMIT");
        pthread_mutex_lock(&lock);
        while (batch) {
            struct place *p = batch;
            batch = p->next;
            p->done = true;
            pthread_cond_signal(&p->wake);
        }
        pthread_mutex_unlock(&lock);
    }
    sqlite3_finalize(insert);
    sqlite3_finalize(event);
    sqlite3_close(db);
    return NULL;
}

static void *insert_rows(void *arg)
{
    long *count = arg;
    struct place p = {.wake = PTHREAD_COND_INITIALIZER};

    while (!over) {
        pthread_mutex_lock(&lock);
        p.done = false;
        p.next = NULL;
        *tail = &p;
        tail = &p.next;
        pthread_cond_signal(&work);
        while (!p.done)
            pthread_cond_wait(&p.wake, &lock);
        pthread_mutex_unlock(&lock);
        ++*count;
    }
    return NULL;
}

/* The service. */

static const char *port, *key, *channel;
static atomic_int numbers;

static int dial(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        fail("connect");
    return fd;
}

/* One whole answer; it must be a 202. */
static void take_answer(int fd)
{
    static __thread char answer[ANSWER_MAX];
    size_t len = 0, want = 0;

    while (want == 0 || len < want) {
        ssize_t n = recv(fd, answer + len, sizeof answer - 1 - len, 0);
        if (n <= 0)
            fail("receive");
        len += (size_t)n;
        answer[len] = '\0';
        const char *end = strstr(answer, "\r\n\r\n"), *length = strcasestr(answer, "\r\ncontent-length:");
        if (end && length)
            want = (size_t)(end + 4 - answer) + strtoul(length + strlen("\r\ncontent-length:"), NULL, 10);
    }
    if (strncmp(answer, "HTTP/1.1 202 ", 13) != 0) {
        fprintf(stderr, "%s\n", answer);
        exit(1);
    }
}

static void *submit_turns(void *arg)
{
    char body[512], request[HEAD_MAX];
    long *count = arg;
    int fd = dial();

    int len =
        snprintf(body, sizeof body,
                 "{\"channel\":\"%s%d\",\"speaker\":{\"id\":\"u1\",\"name\":\"Ada\"},\"text\":\"hello\"}",
                 channel, numbers++ % THREADS);
    len =
        snprintf(request, sizeof request,
                 "POST /v1/turns HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nPrefer: respond-async\r\n"
                 "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
                 key, len, body);
    while (!over) {
        if (send(fd, request, (size_t)len, MSG_NOSIGNAL) != len)
            fail("send");
        take_answer(fd);
        ++*count;
    }
    close(fd);
    return NULL;
}

static double measure(void *(*run)(void *), double seconds)
{
    pthread_t threads[THREADS];
    long counts[THREADS] = {0}, sum = 0;
    double began = now();

    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, run, &counts[i]) != 0)
            fail("thread");
    usleep((useconds_t)(seconds * 1e6));
    over = true;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        sum += counts[i];
    }
    return (double)sum / (now() - began);
}

int main(int argc, char **argv)
{
    pthread_t writer;

    if ((argc == 4 && strcmp(argv[1], "plain") == 0) || (argc == 5 && strcmp(argv[1], "turns") == 0)) {
        state = argc == 5 ? argv[3] : NULL;
        if (pthread_create(&writer, NULL, write_batches, argv[2]) != 0)
            fail("thread");
        printf("%.0f\n", measure(insert_rows, atof(argv[argc - 1])));
        pthread_mutex_lock(&lock);
        no_more = true;
        pthread_cond_signal(&work);
        pthread_mutex_unlock(&lock);
        pthread_join(writer, NULL);
        return 0;
    }
    if (argc == 6 && strcmp(argv[1], "submit") == 0) {
        port = argv[2];
        key = argv[3];
        channel = argv[4];
        printf("%.0f\n", measure(submit_turns, atof(argv[5])));
        return 0;
    }
    return 2;
}
