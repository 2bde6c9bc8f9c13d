/* Callers push, remove and look while threads of a pool pop: nothing is lost, served twice, or served while
 * its channel is busy. */
#include "queue/queue.h"
#include "base/clock.h"

#include "check.h"

#include <stdatomic.h>
#include <string.h>

#define CALLERS  6
#define WORKERS  4
#define EACH     1500
#define CHANNELS 9

static struct queue *queue;
static _Atomic unsigned accepted, served, removed, number;
static _Atomic bool busy[CHANNELS], finished;
static _Atomic unsigned char seen[CALLERS * EACH];

static void serve(const struct queue_item *item)
{
    unsigned id = 0, channel = 0;

    CHECK(sscanf(item->turn_id, "turn-%u", &id) == 1 && id < CALLERS * EACH);
    CHECK(sscanf(item->channel, "web:%u", &channel) == 1 && channel < CHANNELS);
    CHECK(!atomic_exchange(&busy[channel], true));
    CHECK(atomic_fetch_add(&seen[id], 1) == 0);
    served++;
    atomic_store(&busy[channel], false);
    queue_done(queue, item->channel);
}

static void *work(void *arg)
{
    struct queue_item item;

    (void)arg;
    for (;;) {
        int rc = queue_pop(queue, 20, &item);
        if (rc == 1)
            return NULL;
        if (rc == 2)
            continue;
        serve(&item);
        free(item.channel);
    }
}

static void *call(void *arg)
{
    struct err err;

    (void)arg;
    for (int i = 0; i < EACH; i++) {
        struct queue_place *place = NULL;
        struct queue_channel_info info;
        unsigned n = number++;
        char channel[16], key[16], turn[24];
        snprintf(channel, sizeof channel, "web:%u", n % CHANNELS);
        snprintf(key, sizeof key, "key%u", n % 3);
        snprintf(turn, sizeof turn, "turn-%u", n);
        while (queue_reserve(queue, channel, key, &place, &err) < 0) {
            CHECK(err.code == ERR_RATE || err.code == ERR_OVERLOADED);
            CHECK(queue_retry_after(queue) >= 1);
        }
        if (n % 17 == 0) {
            queue_release(queue, place);
            continue;
        }
        accepted++;
        queue_push(queue, place, turn);
        if (n % 5 == 0 && queue_remove(queue, turn))
            removed++;
        queue_channel(queue, channel, &info);
    }
    return NULL;
}

static void *hold(void *arg)
{
    (void)arg;
    while (!finished) {
        queue_hold(queue, true);
        queue_hold(queue, false);
        CHECK(queue_waiting(queue) <= 60);
    }
    return NULL;
}

int main(void)
{
    pthread_t callers[CALLERS], workers[WORKERS], holder;
    struct queue_limits limits = {.per_channel = 10, .per_key = 40, .total = 60};
    struct err err;

    CHECK(queue_new(&limits, &queue, &err) == 0);
    start_threads(workers, WORKERS, work, NULL);
    start_threads(&holder, 1, hold, NULL);
    start_threads(callers, CALLERS, call, NULL);
    join_threads(callers, CALLERS);
    finished = true;
    join_threads(&holder, 1);
    int64_t deadline = clock_mono_ms() + 60000;
    while (served + removed < accepted)
        CHECK(clock_mono_ms() < deadline && queue_retry_after(queue) <= 60);
    queue_close(queue);
    join_threads(workers, WORKERS);
    CHECK(served + removed == accepted && queue_waiting(queue) == 0);
    queue_free(queue);
    printf("queue: %u served, %u removed\n", served, removed);
    return 0;
}
