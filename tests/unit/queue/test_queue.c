#include "base/clock.h"
#include "queue/queue.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct queue *make(unsigned per_channel, unsigned per_key, unsigned total)
{
    struct queue *q = NULL;
    struct err err;
    cr_assert_eq(queue_new(&(struct queue_limits){per_channel, per_key, total}, &q, &err), 0);
    return q;
}

static void push(struct queue *q, const char *channel, const char *key, const char *turn)
{
    struct queue_place *p = NULL;
    struct err err;
    cr_assert_eq(queue_reserve(q, channel, key, &p, &err), 0, "%s", err.text);
    queue_push(q, p, turn);
}

/* The next turn, "-" when none is ready, "!" when closed. */
static const char *pop(struct queue *q)
{
    static struct queue_item item;
    int rc = queue_pop(q, 0, &item);

    if (rc == 0)
        free(item.channel);
    return rc == 0 ? item.turn_id : rc == 1 ? "!" : "-";
}

Test(queue, one_turn_of_a_channel_at_a_time_in_order_over_keys)
{
    struct queue *q = make(10, 10, 100);

    push(q, "web:a", "k1", "t1");
    push(q, "web:a", "k2", "t2");
    push(q, "web:a", "k1", "t3");
    cr_assert_str_eq(pop(q), "t1");
    cr_assert_str_eq(pop(q), "-");
    queue_done(q, "web:a");
    cr_assert_str_eq(pop(q), "t2");
    cr_assert_str_eq(pop(q), "-");
    queue_done(q, "web:a");
    cr_assert_str_eq(pop(q), "t3");
    queue_done(q, "web:a");
    cr_assert_str_eq(pop(q), "-");
    queue_free(q);
}

Test(queue, a_blocked_channel_waits_until_it_is_done)
{
    struct queue *q = make(10, 10, 100);
    struct queue_channel_info info;
    struct err err;

    push(q, "web:a", "k", "t1");
    cr_assert_eq(queue_block(q, "web:a", &err), 0);
    cr_assert_eq(queue_block(q, "web:b", &err), 0);
    push(q, "web:b", "k", "t2");
    push(q, "web:c", "k", "t3");
    cr_assert_str_eq(pop(q), "t3");
    cr_assert_str_eq(pop(q), "-");
    queue_channel(q, "web:b", &info);
    cr_assert(info.busy && info.queued == 1);
    queue_done(q, "web:b");
    cr_assert_str_eq(pop(q), "t2");
    cr_assert_str_eq(pop(q), "-");
    queue_done(q, "web:a");
    cr_assert_str_eq(pop(q), "t1");
    queue_free(q);
}

Test(queue, places_keep_the_order_of_pushing)
{
    struct queue *q = make(10, 10, 100);
    struct queue_place *first = NULL, *second = NULL;
    struct err err;

    cr_assert_eq(queue_reserve(q, "web:a", "k", &first, &err), 0);
    cr_assert_eq(queue_reserve(q, "web:a", "k", &second, &err), 0);
    cr_assert_str_eq(pop(q), "-", "reserved is not queued");
    cr_assert_eq(queue_waiting(q), 0);
    queue_push(q, second, "t2");
    queue_push(q, first, "t1");
    cr_assert_eq(queue_waiting(q), 2);
    cr_assert_str_eq(pop(q), "t2");
    queue_done(q, "web:a");
    cr_assert_str_eq(pop(q), "t1");
    queue_free(q);
}

Test(queue, a_place_knows_how_many_are_before_it)
{
    struct queue *q = make(10, 10, 100);
    struct queue_place *p[4];
    struct err err;

    for (unsigned i = 0; i < 3; i++) {
        cr_assert_eq(queue_reserve(q, "c:a", "k", &p[i], &err), 0);
        cr_assert_eq(queue_ahead(p[i]), i);
    }
    queue_push(q, p[0], "t0");
    queue_push(q, p[1], "t1");
    cr_assert_str_eq(pop(q), "t0");
    cr_assert_eq(queue_reserve(q, "c:a", "k", &p[3], &err), 0);
    cr_assert_eq(queue_ahead(p[3]), 3); /* the running one counts */
    queue_release(q, p[2]);
    queue_release(q, p[3]);
    cr_assert_eq(queue_reserve(q, "c:b", "k", &p[3], &err), 0);
    cr_assert_eq(queue_ahead(p[3]), 0);
    queue_release(q, p[3]);
    queue_free(q);
}

Test(queue, keys_take_turns)
{
    struct queue *q = make(100, 100, 1000);
    char channel[16], turn[16];

    for (int i = 0; i < 5; i++) {
        snprintf(channel, sizeof channel, "a:%d", i);
        snprintf(turn, sizeof turn, "a%d", i);
        push(q, channel, "greedy", turn);
    }
    push(q, "b:0", "modest", "b0");
    push(q, "b:1", "modest", "b1");
    push(q, "c:0", "third", "c0");
    static const char *const want[] = {"a0", "b0", "c0", "a1", "b1", "a2", "a3", "a4", "-"};
    for (size_t i = 0; i < ARRAY_LEN(want); i++)
        cr_assert_str_eq(pop(q), want[i], "pop %zu", i);
    queue_free(q);
}

Test(queue, the_501st_channel_comes_before_any_second_turn)
{
    struct queue *q = make(100, 5000, 10000);
    char channel[32], turn[32];

    for (int i = 0; i < 501; i++)
        for (int n = 0; n < 2; n++) {
            snprintf(channel, sizeof channel, "web:%d", i);
            snprintf(turn, sizeof turn, "%d-%d", n, i);
            push(q, channel, "k", turn);
        }
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < 501; i++) {
            snprintf(turn, sizeof turn, "%d-%d", n, i);
            cr_assert_str_eq(pop(q), turn);
            snprintf(channel, sizeof channel, "web:%d", i);
            queue_done(q, channel);
        }
    cr_assert_str_eq(pop(q), "-");
    queue_free(q);
}

Test(queue, leaving_and_coming_back_wins_nothing)
{
    struct queue *q = make(100, 100, 1000);

    push(q, "web:a", "k", "a1");
    cr_assert_str_eq(pop(q), "a1");
    queue_done(q, "web:a");
    push(q, "web:b", "k", "b1"); /* never served */
    push(q, "web:a", "k", "a2");
    push(q, "web:c", "k", "c1");
    cr_assert_str_eq(pop(q), "b1");
    cr_assert_str_eq(pop(q), "c1");
    cr_assert_str_eq(pop(q), "a2");
    queue_free(q);
}

static void refused(struct queue *q, const char *channel, const char *key, enum err_code code,
                    const char *part)
{
    struct queue_place *p = NULL;
    struct err err = {0};

    cr_assert_eq(queue_reserve(q, channel, key, &p, &err), -1);
    cr_assert_null(p);
    cr_assert_eq(err.code, code, "%s", err.text);
    cr_assert(strstr(err.text, part), "%s", err.text);
}

Test(queue, each_bound_has_its_error)
{
    struct queue *q = make(2, 3, 4);
    struct queue_place *p = NULL;
    struct err err;

    push(q, "web:a", "k1", "t1");
    cr_assert_eq(queue_reserve(q, "web:a", "k1", &p, &err), 0, "a reserved place counts");
    refused(q, "web:a", "k1", ERR_RATE, "2 turns of this channel");
    refused(q, "web:a", "k2", ERR_RATE, "2 turns of this channel");
    push(q, "web:b", "k1", "t2");
    refused(q, "web:c", "k1", ERR_RATE, "3 turns of this key");
    push(q, "web:c", "k2", "t3");
    refused(q, "web:d", "k2", ERR_OVERLOADED, "4 turns are waiting");
    queue_release(q, p);
    push(q, "web:d", "k2", "t4");
    refused(q, "web:d", "k2", ERR_OVERLOADED, "4 turns");
    cr_assert_eq(queue_reserve_recovered(q, "web:a", "k1", &p, &err), 0, "recovered ones know no bounds");
    queue_push(q, p, "t5");
    cr_assert_str_eq(pop(q), "t1");
    refused(q, "web:e", "k3", ERR_OVERLOADED, "4 turns");
    cr_assert_str_eq(pop(q), "t3");
    push(q, "web:e", "k3", "t6"); /* running ones take no place */
    queue_close(q);
    refused(q, "web:f", "k3", ERR_DRAINING, "stopping");
    cr_assert_str_eq(pop(q), "!");
    cr_assert_eq(queue_waiting(q), 4);
    queue_release(q, NULL);
    queue_free(q);
}

Test(queue, a_waiting_turn_can_be_taken_out_once)
{
    struct queue *q = make(10, 10, 100);
    struct queue_channel_info info;

    push(q, "web:a", "k1", "t1");
    push(q, "web:a", "k2", "t2");
    push(q, "web:a", "k3", "t3");
    cr_assert(queue_remove(q, "t1"), "the first, whose key the channel waits for");
    cr_assert_not(queue_remove(q, "t1"));
    cr_assert(queue_remove(q, "t3"));
    cr_assert_not(queue_remove(q, "nonesuch"));
    queue_channel(q, "web:a", &info);
    cr_assert(info.queued == 1 && !info.busy);
    cr_assert_str_eq(pop(q), "t2");
    cr_assert_not(queue_remove(q, "t2"), "it runs");
    queue_channel(q, "web:a", &info);
    cr_assert(info.queued == 0 && info.busy);
    queue_done(q, "web:a");
    queue_channel(q, "web:a", &info);
    cr_assert(info.queued == 0 && !info.busy);
    queue_channel(q, "web:never", &info);
    cr_assert(info.queued == 0 && !info.busy);
    queue_done(q, "web:never");
    queue_free(q);
}

Test(queue, nobody_gets_a_turn_while_held)
{
    struct queue *q = make(10, 10, 100);

    queue_hold(q, true);
    push(q, "web:a", "k", "t1");
    cr_assert_str_eq(pop(q), "-");
    queue_hold(q, false);
    cr_assert_str_eq(pop(q), "t1");
    queue_free(q);
}

struct waiting {
    struct queue *q;
    int rc;
    int64_t waited_ms;
};

static void *wait_for_one(void *arg)
{
    struct waiting *w = arg;
    struct queue_item item;
    int64_t before = clock_mono_ms();

    w->rc = queue_pop(w->q, 20000, &item);
    w->waited_ms = clock_mono_ms() - before;
    if (w->rc == 0)
        free(item.channel);
    return NULL;
}

static void woken_by(void (*act)(struct queue *), int want)
{
    struct queue *q = make(10, 10, 100);
    struct waiting w[4] = {{q, -1, 0}, {q, -1, 0}, {q, -1, 0}, {q, -1, 0}};
    pthread_t threads[4];

    queue_hold(q, true);
    for (int i = 0; i < 4; i++) {
        char channel[8], turn[8];
        snprintf(channel, sizeof channel, "a:%d", i);
        snprintf(turn, sizeof turn, "t%d", i);
        push(q, channel, "k", turn);
        cr_assert_eq(pthread_create(&threads[i], NULL, wait_for_one, &w[i]), 0);
    }
    act(q);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        cr_assert_eq(w[i].rc, want);
        cr_assert_lt(w[i].waited_ms, 15000);
    }
    queue_free(q);
}

static void let_go(struct queue *q)
{
    queue_hold(q, false);
}

Test(queue, letting_go_wakes_all, .timeout = 40)
{
    woken_by(let_go, 0);
}

Test(queue, closing_wakes_all, .timeout = 40)
{
    woken_by(queue_close, 1);
}

Test(queue, waits_no_longer_than_asked)
{
    struct queue *q = make(10, 10, 100);
    struct queue_item item;
    int64_t before = clock_mono_ms();

    cr_assert_eq(queue_pop(q, 50, &item), 2);
    cr_assert_geq(clock_mono_ms() - before, 49);
    queue_free(q);
}

Test(queue, retry_after_is_between_1_and_60)
{
    struct queue *q = make(100000, 100000, 100000);
    char turn[16];

    cr_assert_eq(queue_retry_after(q), 60, "nothing is known yet");
    for (int i = 0; i < 200; i++) {
        queue_done(q, "web:a");
        unsigned wait = queue_retry_after(q);
        cr_assert(wait >= 1 && wait <= 60, "%u", wait);
    }
    cr_assert_eq(queue_retry_after(q), 1, "a fast service");
    for (int i = 0; i < 5000; i++) {
        snprintf(turn, sizeof turn, "t%d", i);
        push(q, "web:a", "k", turn);
    }
    unsigned wait = queue_retry_after(q);
    cr_assert(wait >= 1 && wait <= 60, "%u", wait);
    queue_free(q);
}

Test(queue, retry_after_of_a_slow_service_is_60)
{
    struct queue *q = make(100000, 100000, 100000);
    char turn[16];

    queue_done(q, "web:a");
    queue_done(q, "web:a");
    for (int i = 0; i < 50000; i++) {
        snprintf(turn, sizeof turn, "t%d", i);
        push(q, "web:a", "k", turn);
    }
    clock_sleep_ms(100); /* two ends in this time: the tenth of those that wait takes minutes */
    cr_assert_eq(queue_retry_after(q), 60);
    queue_free(q);
}

Test(queue, many_idle_channels_are_forgotten, .timeout = 60)
{
    struct queue *q = make(10, 100, 100);
    char channel[32];
    int64_t before = clock_mono_ms();

    for (int i = 0; i < 60000; i++) {
        snprintf(channel, sizeof channel, "web:%d", i);
        push(q, channel, "k", "t");
        cr_assert_str_eq(pop(q), "t");
        queue_done(q, channel);
    }
    cr_assert_lt(clock_mono_ms() - before, 30000);
    queue_free(q);
}
