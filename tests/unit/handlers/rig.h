/* The whole API without containers: database, queue, bus, both servers; the test itself plays the pool. */
#pragma once

#include "base/clock.h"
#include "handlers/service.h"
#include "http/router.h"
#include "storage/channels.h"
#include "storage/keys.h"
#include "storage/turns.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <string.h>

struct rig {
    char dir[64];
    char state[96], socket[96];
    struct config *config;
    struct db *db;
    struct known *keys;
    struct queue *queue;
    struct bus *bus;
    struct service service;
    struct http_server *api, *admin;
    atomic_bool unready, no_room, blocked, alive;
    char canceled[64]; /* the turn that was to be canceled last */
    char stopped[256]; /* the channel that was stopped last */
};

/* Bounds of the queue: 0 takes 1000. A failing set-up fails the test. */
void rig_start(struct rig *r, unsigned per_channel);
void rig_stop(struct rig *r);

/* A key made straight in the database; scopes as bits, one glob. The token lands in `token`. */
void rig_key(struct rig *r, unsigned scopes, const char *glob, char id[KEY_ID_SIZE],
             char token[KEY_TOKEN_SIZE]);
void rig_channel(struct rig *r, const char *key, bool enabled);

struct answer {
    int status;
    char head[4096];
    json_t *body; /* NULL when it is no JSON */
};
void answer_free(struct answer *a);
const char *answer_str(const struct answer *a, const char *member);

/* Sends one request on a connection of its own: token NULL: none; socket: the admin socket; body NULL: none;
 * extra: header lines with CRLF or NULL. Returns the descriptor. */
int rig_send(struct rig *r, bool admin, const char *token, const char *method, const char *path,
             const char *extra, const char *body);
/* Reads the answer (at most 10 s) and closes. */
struct answer rig_receive(int fd);
struct answer rig_call(struct rig *r, const char *token, const char *method, const char *path,
                       const char *body);
struct answer rig_admin(struct rig *r, const char *method, const char *path, const char *body);

/* A body of POST /v1/turns; static buffer. */
const char *turn_body(const char *channel, const char *text);
/* Plays the pool for one turn: pops (10 s at most), starts, ends it with this reply text. The id lands in
 * `id`. */
void rig_run_one(struct rig *r, const char *reply, char id[TURN_ID_SIZE]);
/* Pops and starts; the turn runs until rig_end. */
void rig_begin_one(struct rig *r, char id[TURN_ID_SIZE], char **channel);
void rig_end(struct rig *r, const char *id, const char *channel, const char *reply);
/* Waits until so many turns wait in the queue. */
void rig_wait_queued(struct rig *r, unsigned n);
