/* The engine goes away at every step, and comes back; and many boxes at once. */
#include "proxy.h"
#include "world.h"

#include "base/clock.h"
#include "base/id.h"
#include "base/limits.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define TURN "{\"text\":\"hello\"}\n"

/* A sandbox that reaches the engine through a proxy. */
static void open_behind(struct world *w, struct proxy *p, const char *mode)
{
    static char path[108];
    struct err err;

    world_open(w, mode);
    snprintf(path, sizeof path, "%s/proxy.sock", w->dir);
    proxy_start(p, path, w->socket);
    sandbox_free(w->sandbox);
    w->config.engine_socket = path;
    cr_assert_eq(sandbox_new(&w->config, &w->sandbox, &err), 0, "%s", err.text);
    world_prepare(w);
}

static void close_behind(struct world *w, struct proxy *p)
{
    proxy_set(p, PROXY_PASS);
    world_close(w);
    proxy_stop(p);
}

struct later {
    struct proxy *proxy;
    int ms;
};

static void *die_later(void *arg)
{
    struct later *l = arg;

    clock_sleep_ms(l->ms);
    proxy_set(l->proxy, PROXY_DEAD);
    return NULL;
}

static struct box *create(struct world *w, bool start)
{
    struct box *box = NULL;
    char slot[ID_HEX_128];
    struct err err;

    id_hex(slot, 16);
    cr_assert_eq(box_create(w->sandbox, slot, w->broker, w->work, NULL, NULL, &box, &err), 0, "%s", err.text);
    if (start)
        cr_assert_eq(box_start(box, NULL, &err), 0, "%s", err.text);
    return box;
}

static void run(struct world *w, struct box *box, int deadline_ms, struct box_result *r)
{
    struct err err;
    struct box_run_limits limits = {.deadline_mono_ms = clock_mono_ms() + deadline_ms,
                                    .grace_ms = 500,
                                    .abort_fd = w->abort_fd,
                                    .max_stdout = LIMIT_STDOUT};

    cr_assert_eq(box_run(box, TURN, strlen(TURN), &limits, r, &err), 0, "%s", err.text);
}

static void removed_in_the_end(struct box *box)
{
    struct err err;

    cr_expect_eq(box_remove(box, &err), 0, "%s", err.text);
    box_free(box);
}

Test(lost, an_engine_that_dies_during_the_run)
{
    struct world w;
    struct proxy p;
    struct box_result r;
    struct err err;
    pthread_t thread;

    open_behind(&w, &p, "ignore-term");
    struct box *box = create(&w, true);
    struct later l = {&p, 300};
    cr_assert_eq(pthread_create(&thread, NULL, die_later, &l), 0);
    int64_t before = clock_mono_ms();
    run(&w, box, 20000, &r);
    pthread_join(thread, NULL);
    cr_expect_eq(r.end, BOX_ENGINE_LOST);
    cr_expect_neq(r.note[0], '\0');
    cr_expect_lt(clock_mono_ms() - before, 5000);
    cr_expect_lt(box_remove(box, &err), 0, "death is not proven while the engine is away");
    cr_expect_eq(err.code, ERR_ENGINE_AWAY, "%s", err.text);
    proxy_set(&p, PROXY_PASS);
    removed_in_the_end(box);
    box_result_free(&r);
    close_behind(&w, &p);
}

Test(lost, an_engine_that_dies_before_the_start)
{
    struct world w;
    struct proxy p;
    struct err err;
    struct box *never = NULL;
    char slot[ID_HEX_128];

    open_behind(&w, &p, "echo");
    struct box *box = create(&w, false);
    proxy_set(&p, PROXY_DEAD);
    cr_expect_lt(box_start(box, NULL, &err), 0);
    cr_expect_eq(err.code, ERR_ENGINE_AWAY, "%s", err.text);
    id_hex(slot, 16);
    cr_expect_lt(box_create(w.sandbox, slot, w.broker, w.work, NULL, NULL, &never, &err), 0);
    cr_expect_eq(err.code, ERR_ENGINE_AWAY, "%s", err.text);
    cr_assert_not_null(never, "it may exist");
    cr_expect_lt(box_remove(never, &err), 0);
    cr_expect_lt(sandbox_ping(w.sandbox, &err), 0);
    proxy_set(&p, PROXY_PASS);
    cr_expect_eq(sandbox_ping(w.sandbox, &err), 0, "%s", err.text);
    removed_in_the_end(never);
    removed_in_the_end(box);
    close_behind(&w, &p);
}

/* The engine makes the container, and its answer is lost. */
Test(lost, a_create_whose_answer_is_lost_leaves_nothing, .timeout = 60)
{
    struct world w;
    struct proxy p;
    struct err err;
    struct box *box = NULL;
    char slot[ID_HEX_128];

    open_behind(&w, &p, "echo");
    proxy_set(&p, PROXY_MUTE);
    id_hex(slot, 16);
    cr_expect_lt(box_create(w.sandbox, slot, w.broker, w.work, NULL, NULL, &box, &err), 0);
    cr_expect_eq(err.code, ERR_ENGINE_AWAY, "%s", err.text);
    cr_assert_not_null(box);
    cr_expect_str_eq(box_container_id(box), "");
    proxy_set(&p, PROXY_PASS);
    removed_in_the_end(box);
    close_behind(&w, &p); /* asserts that nothing is left */
}

static void assert_gives_up(struct world *w, struct proxy *p, const struct box_bound *bound,
                            enum err_code code)
{
    struct box *started = create(w, false), *box = NULL;
    char slot[ID_HEX_128];
    struct err err;

    id_hex(slot, 16);
    proxy_set(p, PROXY_MUTE);
    cr_expect_lt(box_create(w->sandbox, slot, w->broker, w->work, NULL, bound, &box, &err), 0);
    cr_expect_eq(err.code, code, "%s", err.text);
    cr_assert_not_null(box, "it may exist");
    cr_expect_lt(box_start(started, bound, &err), 0);
    cr_expect_eq(err.code, code, "%s", err.text);
    proxy_set(p, PROXY_PASS);
    removed_in_the_end(box);
    removed_in_the_end(started);
}

/* A turn's deadline and an abort hold for the engine's calls too, and say nothing of the engine. */
Test(lost, an_engine_that_is_slow_is_not_waited_for, .timeout = 60)
{
    struct world w;
    struct proxy p;

    open_behind(&w, &p, "echo");
    int64_t before = clock_mono_ms();
    struct box_bound bound = {.deadline_mono_ms = before + 500, .abort_fd = w.abort_fd};
    assert_gives_up(&w, &p, &bound, ERR_TIMEOUT);
    cr_expect_lt(clock_mono_ms() - before, 3000);
    before = clock_mono_ms();
    bound.deadline_mono_ms = before + 30000;
    world_abort_after(&w, 200);
    assert_gives_up(&w, &p, &bound, ERR_CANCELED);
    cr_expect_lt(clock_mono_ms() - before, 4000);
    close_behind(&w, &p);
}

/* The worker runs, although nobody was told; it must be dead when box_remove says so. */
Test(lost, a_start_whose_answer_is_lost_is_killed, .timeout = 60)
{
    struct world w;
    struct proxy p;
    struct err err;
    struct stat a, b;
    char path[128];

    open_behind(&w, &p, "reply-then-write");
    struct box *box = create(&w, false);
    proxy_set(&p, PROXY_MUTE);
    cr_expect_lt(box_start(box, NULL, &err), 0);
    cr_expect_eq(err.code, ERR_ENGINE_AWAY, "%s", err.text);
    proxy_set(&p, PROXY_PASS);
    removed_in_the_end(box);
    snprintf(path, sizeof path, "%s/after-reply-child", w.work);
    cr_assert_eq(stat(path, &a), 0, "the worker has run");
    clock_sleep_ms(200);
    cr_assert_eq(stat(path, &b), 0);
    cr_expect_eq(a.st_size, b.st_size);
    close_behind(&w, &p);
}

static bool keep_none(const char *slot, const char *boot, void *arg)
{
    (void)slot, (void)boot, (void)arg;
    return false;
}

static void *sweep_later(void *arg)
{
    struct world *w = arg;
    struct err err;
    struct sandbox_swept swept;

    clock_sleep_ms(300);
    cr_expect_eq(sandbox_sweep(w->sandbox, keep_none, NULL, &swept, &err), 0, "%s", err.text);
    cr_expect_eq(swept.removed, 1);
    return NULL;
}

/* Removed by another hand while it runs: whoever it was, the run ends and death is proven. */
Test(lost, a_container_removed_by_another_hand)
{
    struct world w;
    struct box_result r;
    pthread_t thread;

    world_open(&w, "ignore-term");
    world_prepare(&w);
    struct box *box = create(&w, true);
    cr_assert_eq(pthread_create(&thread, NULL, sweep_later, &w), 0);
    run(&w, box, 20000, &r);
    pthread_join(thread, NULL);
    cr_expect(r.end == BOX_ENGINE_LOST || (r.end == BOX_EXITED && r.signal == 9), "end %d", r.end);
    removed_in_the_end(box);
    box_result_free(&r);
    world_close(&w);
}

#define THREADS 8
#define ROUNDS  6

static void *turns(void *arg)
{
    struct world *w = arg;

    for (int i = 0; i < ROUNDS; i++) {
        struct box_result r;
        struct box *box = create(w, true);
        run(w, box, 30000, &r);
        cr_expect_eq(r.end, BOX_REPLY, "end %d", r.end);
        cr_expect_str_eq(r.out.data, "{\"ok\":true,\"text\":\"hello\"}");
        box_result_free(&r);
        removed_in_the_end(box);
    }
    return NULL;
}

Test(many, boxes_of_many_threads, .timeout = 120)
{
    struct world w;
    pthread_t threads[THREADS];

    world_open(&w, "echo");
    world_prepare(&w);
    int64_t before = clock_mono_ms();
    for (int i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, turns, &w), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    fprintf(stderr, "%d turns on %d threads: %d ms\n", THREADS * ROUNDS, THREADS,
            (int)(clock_mono_ms() - before));
    world_close(&w);
}
