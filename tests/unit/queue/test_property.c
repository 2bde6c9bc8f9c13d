/* Random operations against a model that is too simple to be wrong: plain arrays, searched from the front. */
#include "queue/queue.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define CHANNELS    7
#define KEYS        4
#define TURNS       4096
#define PER_CHANNEL 6
#define PER_KEY     9
#define TOTAL       20

struct model {
    struct {
        int channel, key;
        bool pushed, gone;
        struct queue_place *place; /* reserved, not pushed */
        unsigned order;            /* of pushing */
    } turns[TURNS];
    unsigned count, pushes, tick;
    bool busy[CHANNELS], held;
    unsigned served[CHANNELS];  /* tick; 0: never */
    unsigned entered[CHANNELS]; /* when the channel became ready for its key, a clock of its own */
    int ready_key[CHANNELS];    /* -1: not ready */
    int rotation[KEYS], rotating;
};

static unsigned next_random(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static int first_of(const struct model *m, int channel)
{
    int best = -1;
    for (unsigned i = 0; i < m->count; i++)
        if (!m->turns[i].gone && m->turns[i].pushed && m->turns[i].channel == channel &&
            (best < 0 || m->turns[i].order < m->turns[best].order))
            best = (int)i;
    return best;
}

static bool key_has_ready(const struct model *m, int key)
{
    for (int c = 0; c < CHANNELS; c++)
        if (m->ready_key[c] == key)
            return true;
    return false;
}

static void leave_rotation(struct model *m, int key)
{
    for (int i = 0; i < m->rotating; i++)
        if (m->rotation[i] == key) {
            memmove(&m->rotation[i], &m->rotation[i + 1], (size_t)(m->rotating - i - 1) * sizeof(int));
            m->rotating--;
            return;
        }
}

static void update(struct model *m, int c)
{
    static unsigned clock;
    int first = first_of(m, c), want = m->busy[c] || first < 0 ? -1 : m->turns[first].key;
    int have = m->ready_key[c];

    if (want == have)
        return;
    m->ready_key[c] = -1;
    if (have >= 0 && !key_has_ready(m, have))
        leave_rotation(m, have);
    if (want >= 0) {
        if (!key_has_ready(m, want))
            m->rotation[m->rotating++] = want;
        m->entered[c] = ++clock;
        m->ready_key[c] = want;
    }
}

static unsigned count_where(const struct model *m, int channel, int key)
{
    unsigned n = 0;
    for (unsigned i = 0; i < m->count; i++)
        n += !m->turns[i].gone && (channel < 0 || m->turns[i].channel == channel) &&
             (key < 0 || m->turns[i].key == key);
    return n;
}

static void name(char out[40], const char *prefix, unsigned n)
{
    snprintf(out, 40, "%s%u", prefix, n);
}

static void op_reserve(struct queue *q, struct model *m, unsigned *seed)
{
    int c = (int)(next_random(seed) % CHANNELS), k = (int)(next_random(seed) % KEYS);
    char channel[40], key[40];
    struct err err = {0};
    struct queue_place *p = NULL;
    enum err_code want = count_where(m, -1, -1) >= TOTAL        ? ERR_OVERLOADED
                         : count_where(m, -1, k) >= PER_KEY     ? ERR_RATE
                         : count_where(m, c, -1) >= PER_CHANNEL ? ERR_RATE
                                                                : ERR_NONE;

    if (m->count == TURNS)
        return;
    name(channel, "web:", (unsigned)c);
    name(key, "key", (unsigned)k);
    int rc = queue_reserve(q, channel, key, &p, &err);
    cr_assert_eq(rc, want ? -1 : 0);
    cr_assert_eq(err.code, want, "%s", err.text);
    if (rc < 0)
        return;
    m->turns[m->count].channel = c;
    m->turns[m->count].key = k;
    m->turns[m->count++].place = p;
}

/* A reserved turn that is not pushed yet, or -1. */
static int some_reserved(const struct model *m, unsigned *seed)
{
    unsigned from = m->count ? next_random(seed) % m->count : 0;
    for (unsigned i = 0; i < m->count; i++) {
        unsigned at = (from + i) % m->count;
        if (m->turns[at].place)
            return (int)at;
    }
    return -1;
}

static void op_push_or_release(struct queue *q, struct model *m, unsigned *seed, bool push)
{
    int i = some_reserved(m, seed);
    char turn[40];

    if (i < 0)
        return;
    struct queue_place *p = m->turns[i].place;
    m->turns[i].place = NULL;
    if (push) {
        name(turn, "turn", (unsigned)i);
        queue_push(q, p, turn);
        m->turns[i].pushed = true;
        m->turns[i].order = ++m->pushes;
    } else {
        queue_release(q, p);
        m->turns[i].gone = true;
    }
    update(m, m->turns[i].channel);
}

static void op_pop(struct queue *q, struct model *m)
{
    struct queue_item item;
    int best = -1, rc = queue_pop(q, 0, &item);

    if (!m->held && m->rotating > 0)
        for (int c = 0; c < CHANNELS; c++)
            if (m->ready_key[c] == m->rotation[0] &&
                (best < 0 || m->served[c] < m->served[best] ||
                 (m->served[c] == m->served[best] && m->entered[c] < m->entered[best])))
                best = c;
    cr_assert_eq(rc, best < 0 ? 2 : 0);
    if (rc != 0)
        return;
    char turn[40], channel[40];
    int i = first_of(m, best), key = m->turns[i].key;
    name(turn, "turn", (unsigned)i);
    name(channel, "web:", (unsigned)best);
    cr_assert_str_eq(item.turn_id, turn);
    cr_assert_str_eq(item.channel, channel);
    free(item.channel);
    leave_rotation(m, key);
    m->rotation[m->rotating++] = key;
    m->turns[i].gone = true;
    m->busy[best] = true;
    m->served[best] = ++m->tick;
    update(m, best);
}

static void op_done(struct queue *q, struct model *m, unsigned *seed)
{
    int c = (int)(next_random(seed) % CHANNELS);
    char channel[40];

    name(channel, "web:", (unsigned)c);
    queue_done(q, channel);
    m->busy[c] = false;
    update(m, c);
}

static void op_remove(struct queue *q, struct model *m, unsigned *seed)
{
    char turn[40];

    if (m->count == 0)
        return;
    unsigned back = next_random(seed) % 30, i = m->count - 1 - (back < m->count ? back : 0);
    name(turn, "turn", i);
    bool there = m->turns[i].pushed && !m->turns[i].gone;
    cr_assert_eq(queue_remove(q, turn), there);
    if (there) {
        m->turns[i].gone = true;
        update(m, m->turns[i].channel);
    }
}

static void compare(struct queue *q, const struct model *m)
{
    unsigned waiting = 0;

    for (int c = 0; c < CHANNELS; c++) {
        struct queue_channel_info info;
        char channel[40];
        unsigned queued = 0;
        name(channel, "web:", (unsigned)c);
        queue_channel(q, channel, &info);
        for (unsigned i = 0; i < m->count; i++)
            queued += m->turns[i].pushed && !m->turns[i].gone && m->turns[i].channel == c;
        cr_assert_eq(info.queued, queued);
        cr_assert_eq(info.busy, m->busy[c]);
        waiting += queued;
    }
    cr_assert_eq(queue_waiting(q), waiting);
}

Test(property, random_operations_agree_with_the_model, .timeout = 60)
{
    static struct model m;

    for (unsigned round = 0; round < 300; round++) {
        unsigned seed = 4711 + round;
        struct queue *q = NULL;
        struct err err;
        m = (struct model){0};
        for (int c = 0; c < CHANNELS; c++)
            m.ready_key[c] = -1;
        cr_assert_eq(queue_new(&(struct queue_limits){PER_CHANNEL, PER_KEY, TOTAL}, &q, &err), 0);
        for (int step = 0; step < 400; step++) {
            unsigned what = next_random(&seed) % 100;
            if (what < 30)
                op_reserve(q, &m, &seed);
            else if (what < 58)
                op_push_or_release(q, &m, &seed, true);
            else if (what < 62)
                op_push_or_release(q, &m, &seed, false);
            else if (what < 78)
                op_pop(q, &m);
            else if (what < 92)
                op_done(q, &m, &seed);
            else if (what < 97)
                op_remove(q, &m, &seed);
            else
                queue_hold(q, m.held = !m.held);
            compare(q, &m);
        }
        for (int i; (i = some_reserved(&m, &seed)) >= 0;)
            op_push_or_release(q, &m, &seed, false);
        queue_free(q);
    }
}
