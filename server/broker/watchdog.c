#include "broker/watchdog.h"

#include "base/clock.h"
#include "base/limits.h"

#include <pthread.h>
#include <sys/socket.h>
#include <time.h>

struct watchdog {
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t wake;
    struct watched *first, *last; /* earliest deadline first */
    bool stop;
    pthread_t thread;
};

static void unlink_locked(struct watchdog *dog, struct watched *w)
{
    if (!w->armed)
        return;
    *(w->before ? &w->before->after : &dog->first) = w->after;
    *(w->after ? &w->after->before : &dog->last) = w->before;
    w->before = w->after = NULL;
    w->armed = false;
}

static void wait_locked(struct watchdog *dog)
{
    if (!dog->first) {
        pthread_cond_wait(&dog->wake, &dog->lock);
        return;
    }
    struct timespec until = {.tv_sec = (time_t)(dog->first->deadline / 1000),
                             .tv_nsec = (long)(dog->first->deadline % 1000) * 1000000};
    pthread_cond_timedwait(&dog->wake, &dog->lock, &until);
}

static void *run(void *arg)
{
    struct watchdog *dog = arg;

    pthread_mutex_lock(&dog->lock);
    while (!dog->stop) {
        struct watched *w = dog->first;
        if (w && clock_left_ms(w->deadline) == 0) {
            unlink_locked(dog, w);
            shutdown(w->fd, SHUT_RDWR);
        } else {
            wait_locked(dog);
        }
    }
    pthread_mutex_unlock(&dog->lock);
    return NULL;
}

static void destroy(struct watchdog *dog)
{
    pthread_cond_destroy(&dog->wake);
    pthread_mutex_destroy(&dog->lock);
    free(dog);
}

int watchdog_new(struct watchdog **ret, struct err *err)
{
    struct watchdog *dog = calloc(1, sizeof *dog);
    pthread_condattr_t attr;

    if (!dog)
        return err_no_memory(err);
    pthread_mutex_init(&dog->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&dog->wake, &attr);
    pthread_condattr_destroy(&attr);
    int rc = pthread_create(&dog->thread, NULL, run, dog);
    if (rc != 0) {
        destroy(dog);
        return err_errno(err, rc, "start the watchdog");
    }
    *ret = dog;
    return 0;
}

void watchdog_free(struct watchdog *dog)
{
    if (!dog)
        return;
    pthread_mutex_lock(&dog->lock);
    dog->stop = true;
    pthread_cond_signal(&dog->wake);
    pthread_mutex_unlock(&dog->lock);
    pthread_join(dog->thread, NULL);
    destroy(dog);
}

void watchdog_arm(struct watchdog *dog, struct watched *w)
{
    pthread_mutex_lock(&dog->lock);
    unlink_locked(dog, w);
    w->deadline = clock_mono_ms() + LIMIT_BROKER_HEAD_S * 1000;
    w->armed = true;
    w->before = dog->last;
    *(dog->last ? &dog->last->after : &dog->first) = w;
    dog->last = w;
    if (dog->first == w)
        pthread_cond_signal(&dog->wake);
    pthread_mutex_unlock(&dog->lock);
}

void watchdog_rest(struct watchdog *dog, struct watched *w)
{
    pthread_mutex_lock(&dog->lock);
    unlink_locked(dog, w);
    pthread_mutex_unlock(&dog->lock);
}
