/* tests/unit/worker/rig.h: what the worker's tests share: a scripted broker on a real Unix socket, a
 * workspace, and one run of the worker with its lines in memory files. */
#pragma once

#include "base/json.h"

#include <stdbool.h>

#define RIG_CALLS 64

struct rig_step {
    int status;       /* 0: 200 */
    const char *body; /* of the answer */
    size_t body_len;  /* 0: strlen */
    const char *raw;  /* instead of status and body: these bytes, then the end of the connection */
    bool hang;        /* takes the request and never answers */
    bool deaf;        /* answers after the head, without reading the body */
};

struct rig {
    char dir[64];  /* own temporary folder */
    char work[96]; /* the workspace in it */
    char sock[96];
    const struct rig_step *steps; /* the last one repeats */
    size_t step_count;
    /* What the broker saw; read after rig_done. */
    size_t calls;
    char *paths[RIG_CALLS];
    char *heads[RIG_CALLS];
    json_t *requests[RIG_CALLS];
    size_t sizes[RIG_CALLS];
    int listen_fd, wake[2];
    unsigned long thread;
};

/* Makes folder, workspace and broker. Fails the test when it cannot. */
void rig_start(struct rig *r, const struct rig_step *steps, size_t count);
/* Another script, between two turns. */
void rig_script(struct rig *r, const struct rig_step *steps, size_t count);
/* Blocks until the broker has taken `calls` requests, at most 5 s; false when it has not. */
bool rig_wait_calls(struct rig *r, size_t calls);
/* Stops the broker and removes the folder. */
void rig_done(struct rig *r);

/* A turn of rig's workspace with `changes` (a JSON object, or NULL) put over it; null removes a member.
 * Caller frees. */
char *rig_turn(const struct rig *r, const char *changes);
/* Runs one turn; *exit_code may be NULL. The reply is checked against the protocol; caller decrefs. */
json_t *rig_run(struct rig *r, const char *line, int *exit_code);
/* The same with changes instead of a line. */
json_t *rig_run_turn(struct rig *r, const char *changes, int *exit_code);
/* A file of the workspace; NULL when absent. Caller frees. */
char *rig_file(const struct rig *r, const char *name);
void rig_put(const struct rig *r, const char *name, const char *text);

/* Chat-completions answers, good until rig_done. */
const char *say(const char *text);
/* `calls`: JSON array of [id, name, arguments]. */
const char *call(const char *calls);
/* Last message of request n. */
const json_t *rig_message(const struct rig *r, size_t request, int from_end);
json_t *rig_json(const char *text);
/* Content of request n's system prompt; number of its messages. */
const char *system_of(const struct rig *r, size_t request);
size_t message_count(const struct rig *r, size_t request);
/* Checks and frees a reply. */
void expect_text(json_t *reply, const char *text);

/* A script: pointer and count. */
#define STEPS(...)                                                                                           \
    (const struct rig_step[]){__VA_ARGS__},                                                                  \
        sizeof((const struct rig_step[]){__VA_ARGS__}) / sizeof(struct rig_step)
