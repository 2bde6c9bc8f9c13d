#include "base/clock.h"
#include "events/bus.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static struct bus *make(void)
{
    struct bus *bus = NULL;
    struct err err;
    cr_assert_eq(bus_new(&bus, &err), 0);
    return bus;
}

static void count(void *arg)
{
    atomic_fetch_add((_Atomic unsigned *)arg, 1);
}

Test(bus, wakes_all_listeners_of_a_topic_and_no_other)
{
    struct bus *bus = make();
    struct bus_sub *subs[3];
    _Atomic unsigned woken[3] = {0};
    struct err err;

    bus_publish(bus, "turn_1");
    cr_assert_eq(bus_subscribe(bus, "turn_1", count, &woken[0], &subs[0], &err), 0);
    cr_assert_eq(bus_subscribe(bus, "turn_1", count, &woken[1], &subs[1], &err), 0);
    cr_assert_eq(bus_subscribe(bus, "turn_2", count, &woken[2], &subs[2], &err), 0);
    bus_publish(bus, "turn_1");
    bus_publish(bus, "turn_1");
    bus_publish(bus, "turn");
    cr_assert(woken[0] == 2 && woken[1] == 2 && woken[2] == 0);
    bus_unsubscribe(bus, subs[0]);
    bus_publish(bus, "turn_1");
    bus_publish(bus, "turn_2");
    cr_assert(woken[0] == 2 && woken[1] == 3 && woken[2] == 1);
    bus_unsubscribe(bus, subs[1]);
    bus_unsubscribe(bus, subs[2]);
    bus_unsubscribe(bus, NULL);
    bus_publish(bus, "turn_1");
    cr_assert_eq(woken[1], 3);
    bus_free(bus);
    bus_free(NULL);
}

Test(bus, a_topic_too_long_is_refused_not_cut)
{
    struct bus *bus = make();
    struct bus_sub *sub = NULL;
    _Atomic unsigned woken = 0;
    struct err err;
    char topic[65];

    memset(topic, 't', 64);
    topic[64] = '\0';
    cr_assert_eq(bus_subscribe(bus, topic, count, &woken, &sub, &err), -1);
    cr_assert_eq(err.code, ERR_INTERNAL);
    cr_assert_eq(bus_subscribe(bus, topic + 1, count, &woken, &sub, &err), 0);
    bus_publish(bus, topic + 1);
    cr_assert_eq(woken, 1);
    bus_unsubscribe(bus, sub);
    bus_free(bus);
}

struct noisy {
    struct bus *bus;
    _Atomic bool stop;
};

static void *publish_all(void *arg)
{
    struct noisy *n = arg;

    while (!n->stop)
        for (int i = 0; i < 4; i++) {
            char topic[16];
            snprintf(topic, sizeof topic, "turn_%d", i);
            bus_publish(n->bus, topic);
        }
    return NULL;
}

/* Fresh memory for each listener, freed as soon as bus_unsubscribe has returned: a late wake would show. */
static void *come_and_go(void *arg)
{
    struct noisy *n = arg;
    struct err err;

    for (int i = 0; i < 2000; i++) {
        _Atomic unsigned *woken = calloc(1, sizeof *woken);
        struct bus_sub *sub = NULL;
        char topic[16];
        snprintf(topic, sizeof topic, "turn_%d", i % 4);
        if (!woken || bus_subscribe(n->bus, topic, count, woken, &sub, &err) < 0)
            return "no memory";
        bus_publish(n->bus, topic);
        if (*woken == 0)
            return "not woken";
        bus_unsubscribe(n->bus, sub);
        unsigned last = *woken;
        bus_publish(n->bus, topic);
        if (*woken != last)
            return "woken after unsubscribe";
        free(woken);
    }
    return NULL;
}

Test(bus, listeners_come_and_go_under_noise, .timeout = 60)
{
    struct noisy n = {.bus = make()};
    pthread_t publishers[2], listeners[8];
    void *why;

    for (size_t i = 0; i < ARRAY_LEN(publishers); i++)
        cr_assert_eq(pthread_create(&publishers[i], NULL, publish_all, &n), 0);
    for (size_t i = 0; i < ARRAY_LEN(listeners); i++)
        cr_assert_eq(pthread_create(&listeners[i], NULL, come_and_go, &n), 0);
    for (size_t i = 0; i < ARRAY_LEN(listeners); i++) {
        pthread_join(listeners[i], &why);
        cr_assert_null(why, "%s", (char *)why);
    }
    n.stop = true;
    for (size_t i = 0; i < ARRAY_LEN(publishers); i++)
        pthread_join(publishers[i], NULL);
    bus_free(n.bus);
}
