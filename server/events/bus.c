#include "events/bus.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
/* Without memory an element is simply not in the table: its hh.tbl is NULL. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <utlist.h>

#define TOPIC_SIZE 64

struct topic {
    char name[TOPIC_SIZE];
    struct bus_sub *subs;
    UT_hash_handle hh;
};

struct bus_sub {
    struct topic *topic;
    void (*wake)(void *arg);
    void *arg;
    struct bus_sub *prev, *next;
};

struct bus {
    pthread_mutex_t lock;
    struct topic *topics;
};

int bus_new(struct bus **ret, struct err *err)
{
    struct bus *bus = calloc(1, sizeof *bus);

    if (!bus)
        return err_no_memory(err);
    pthread_mutex_init(&bus->lock, NULL);
    *ret = bus;
    return 0;
}

void bus_free(struct bus *bus)
{
    if (!bus)
        return;
    pthread_mutex_destroy(&bus->lock);
    free(bus);
}

int bus_subscribe(struct bus *bus, const char *topic, void (*wake)(void *arg), void *arg,
                  struct bus_sub **ret, struct err *err)
{
    struct bus_sub *sub = calloc(1, sizeof *sub);
    struct topic *t = NULL, *fresh = calloc(1, sizeof *fresh);

    if (!sub || !fresh || strlen(topic) >= TOPIC_SIZE) {
        int rc = sub && fresh ? err_set(err, ERR_INTERNAL, "topic too long") : err_no_memory(err);
        free(sub);
        free(fresh);
        return rc;
    }
    pthread_mutex_lock(&bus->lock);
    HASH_FIND_STR(bus->topics, topic, t);
    if (!t) {
        t = fresh;
        fresh = NULL;
        snprintf(t->name, sizeof t->name, "%s", topic);
        HASH_ADD_STR(bus->topics, name, t);
        if (!t->hh.tbl) {
            pthread_mutex_unlock(&bus->lock);
            free(t);
            free(sub);
            return err_no_memory(err);
        }
    }
    *sub = (struct bus_sub){.topic = t, .wake = wake, .arg = arg};
    DL_APPEND(t->subs, sub);
    pthread_mutex_unlock(&bus->lock);
    free(fresh);
    *ret = sub;
    return 0;
}

void bus_unsubscribe(struct bus *bus, struct bus_sub *sub)
{
    struct topic *t;

    if (!sub)
        return;
    pthread_mutex_lock(&bus->lock);
    t = sub->topic;
    DL_DELETE(t->subs, sub);
    if (t->subs) {
        t = NULL;
    } else {
        HASH_DEL(bus->topics, t);
    }
    pthread_mutex_unlock(&bus->lock);
    free(t);
    free(sub);
}

void bus_publish(struct bus *bus, const char *topic)
{
    struct topic *t = NULL;
    struct bus_sub *sub;

    pthread_mutex_lock(&bus->lock);
    HASH_FIND_STR(bus->topics, topic, t);
    if (t)
        DL_FOREACH(t->subs, sub)
            sub->wake(sub->arg);
    pthread_mutex_unlock(&bus->lock);
}
