/* What a start makes of what the last run left. */
#include "rig.h"

#include "base/clock.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

Test(recover, running_turns_end_and_queued_ones_wait_again_in_order)
{
    struct rig *r = make_rig();
    struct err err;
    struct queue_item item;

    write_db(r, put_job, (struct call){.channel = "web:a", .enabled = true});
    write_db(r, put_job, (struct call){.channel = "web:b", .enabled = true});
    static const char *const ids[] = {"turn_3", "turn_1", "turn_2", "turn_0"};
    for (size_t i = 0; i < 4; i++)
        write_db(r, insert_job, (struct call){.id = ids[i], .channel = i == 3 ? "web:b" : "web:a"});
    write_db(r, start_job, (struct call){.id = "turn_3"});
    cr_assert_eq(pool_recover(&r->pool.deps, &err), 0, "%s", err.text);
    assert_status(r, "turn_3", TURN_INTERRUPTED, "server_restarted");
    assert_pops(r, "turn_1", "web:a");
    assert_pops(r, "turn_0", "web:b");
    cr_assert_eq(queue_pop(r->queue, 0, &item), 2, "one of a channel at a time");
    queue_done(r->queue, "web:a");
    assert_pops(r, "turn_2", "web:a");
    free_rig(r);
}

/* An engine that knows no container: 404 to every request, until the last call. */
struct no_engine {
    int listener;
    pthread_t thread;
};

static void *answer_404(void *arg)
{
    static const char answer[] = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    struct no_engine *e = arg;
    char request[4096];
    int fd;

    while ((fd = accept(e->listener, NULL, NULL)) >= 0) {
        if (recv(fd, request, sizeof request, 0) > 0)
            send(fd, answer, sizeof answer - 1, MSG_NOSIGNAL);
        close(fd);
    }
    return NULL;
}

static void engine_start(struct no_engine *e, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    e->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(e->listener, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(listen(e->listener, 16), 0);
    cr_assert_eq(pthread_create(&e->thread, NULL, answer_404, e), 0);
}

static void engine_stop(struct no_engine *e)
{
    shutdown(e->listener, SHUT_RDWR);
    pthread_join(e->thread, NULL);
    close(e->listener);
}

static struct sandbox *sandbox_at(const char *socket)
{
    struct sandbox *s = NULL;
    struct sandbox_config config = {.engine_socket = socket,
                                    .image = "x",
                                    .installation = "i",
                                    .boot = "b",
                                    .uid = 1,
                                    .gid = 1,
                                    .memory_mb = 64,
                                    .cpus = 1,
                                    .pids = 16,
                                    .nofile = 256,
                                    .tmp_mb = 64};
    struct err err;

    cr_assert_eq(sandbox_new(&config, &s, &err), 0, "%s", err.text);
    return s;
}

#define OLD_SLOT   "00112233445566778899aabbccddeeff"
#define OLDER_SLOT "ffeeddccbbaa99887766554433221100"

static int old_slots_job(struct store *st, void *arg, struct err *err)
{
    bool reset;
    int64_t seen;

    (void)arg;
    if (turns_start(st, "turn_0", OLDER_SLOT, "boot", 2, &reset, &seen, err) < 0)
        return -1;
    return turns_start(st, "turn_1", OLD_SLOT, "boot", 2, &reset, &seen, err);
}

static int count_slots(const char *slot, const char *turn_id, const char *channel, void *arg, struct err *err)
{
    (void)slot, (void)turn_id, (void)channel, (void)err;
    ++*(unsigned *)arg;
    return 0;
}

static int count_slots_job(struct store *st, void *arg, struct err *err)
{
    *(unsigned *)arg = 0;
    return slots_each(st, count_slots, arg, err);
}

static unsigned slots_left(struct rig *r)
{
    struct err err;
    unsigned count = 0;

    cr_assert_eq(db_read(r->db, count_slots_job, &count, &err), 0, "%s", err.text);
    return count;
}

/* Containers of the last run, two of one channel: it waits until both are proven dead, another does not. */
Test(recover, a_channel_waits_for_what_the_last_run_left_of_it, .timeout = 30)
{
    struct rig *r = make_rig();
    CLEANUP(free_str) char *socket = scratch_path(r->dir, "engine.sock");
    CLEANUP(free_str) char *folder = scratch_path(r->run, OLD_SLOT);
    struct no_engine engine;
    struct active under_way = {.channel = "x", .abort_fd = -1}; /* keeps the graveyard's thread at work */
    struct queue_item item;
    struct err err;
    pthread_t graves;

    for (int i = 0; i < 3; i++)
        push_turn(r, (const char *[]){"turn_0", "turn_1", "turn_2"}[i], "web:a");
    push_turn(r, "turn_3", "web:b");
    queue_free(r->queue);
    cr_assert_eq(queue_new(&(struct queue_limits){100, 100, 100}, &r->queue, &err), 0);
    r->pool.deps.queue = r->queue;
    r->pool.deps.sandbox = sandbox_at(socket);
    write_db(r, old_slots_job, (struct call){0});
    cr_assert_eq(mkdir(folder, 0700), 0);

    cr_assert_eq(pool_recover(&r->pool.deps, &err), 0, "%s", err.text);
    cr_assert_eq(recover_slots(&r->pool, &err), 0, "%s", err.text);
    cr_assert(pool_blocked(&r->pool, "web:a") && !pool_blocked(&r->pool, "web:b"));
    cr_assert(pool_turn_alive(&r->pool, "turn_1"));
    assert_pops(r, "turn_3", "web:b");
    cr_assert_eq(active_add(&r->pool, &under_way), true);
    cr_assert_eq(pthread_create(&graves, NULL, graveyard_main, &r->pool), 0);
    cr_assert_eq(queue_pop(r->queue, 200, &item), 2, "the engine is away: nothing is proven");
    cr_assert_eq(slots_left(r), 2);

    engine_start(&engine, socket);
    cr_assert_eq(queue_pop(r->queue, 5000, &item), 0, "the engine knows no such container");
    cr_assert_str_eq(item.turn_id, "turn_2");
    free(item.channel);
    cr_assert_not(pool_blocked(&r->pool, "web:a"));
    cr_assert_neq(access(folder, F_OK), 0);
    active_remove(&r->pool, &under_way);
    pthread_mutex_lock(&r->pool.lock);
    r->pool.stopping = true;
    pthread_mutex_unlock(&r->pool.lock);
    pthread_join(graves, NULL);
    for (int64_t end = clock_mono_ms() + 5000; slots_left(r) > 0; clock_sleep_ms(5)) /* not waited for */
        cr_assert_lt(clock_mono_ms(), end, "a row is left");
    engine_stop(&engine);
    sandbox_free(r->pool.deps.sandbox);
    free_rig(r);
}
