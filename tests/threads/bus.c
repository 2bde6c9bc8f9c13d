/* Publishers and listeners that come and go: every listener hears its own publication, and nothing after it
 * has left. */
#include "events/bus.h"

#include "check.h"

#include <stdatomic.h>

#define LISTENERS 6
#define ROUNDS    3000
#define TOPICS    5

static struct bus *bus;
static _Atomic bool finished;
static _Atomic unsigned number, heard;

struct listener {
    pthread_mutex_t lock;
    unsigned woken;
    bool left;
};

static void wake(void *arg)
{
    struct listener *l = arg;

    pthread_mutex_lock(&l->lock);
    CHECK(!l->left);
    l->woken++;
    pthread_mutex_unlock(&l->lock);
}

static void *listen_and_leave(void *arg)
{
    struct err err;

    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        struct listener *l = calloc(1, sizeof *l);
        struct bus_sub *sub = NULL;
        char topic[16];
        CHECK(l);
        pthread_mutex_init(&l->lock, NULL);
        snprintf(topic, sizeof topic, "turn_%u", number++ % TOPICS);
        CHECK(bus_subscribe(bus, topic, wake, l, &sub, &err) == 0);
        bus_publish(bus, topic);
        bus_unsubscribe(bus, sub);
        l->left = true; /* without the lock: nobody else may touch it any more */
        CHECK(l->woken >= 1);
        heard += l->woken;
        pthread_mutex_destroy(&l->lock);
        free(l);
    }
    return NULL;
}

static void *publish(void *arg)
{
    char topic[16];

    (void)arg;
    for (unsigned i = 0; !finished; i++) {
        snprintf(topic, sizeof topic, "turn_%u", i % TOPICS);
        bus_publish(bus, topic);
    }
    return NULL;
}

int main(void)
{
    pthread_t listeners[LISTENERS], publishers[2];
    struct err err;

    CHECK(bus_new(&bus, &err) == 0);
    start_threads(publishers, 2, publish, NULL);
    start_threads(listeners, LISTENERS, listen_and_leave, NULL);
    join_threads(listeners, LISTENERS);
    finished = true;
    join_threads(publishers, 2);
    bus_free(bus);
    printf("bus: %u wake-ups\n", heard);
    return 0;
}
