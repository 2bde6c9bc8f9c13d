/* sandbox/box.h: what the files of this room share; nothing outside includes it. */
#pragma once

#include "docker/engine.h"
#include "docker/frames.h"
#include "sandbox/cgroup.h"
#include "sandbox/ring.h"
#include "sandbox/sandbox.h"
#include "sandbox/spec.h"

#include <pthread.h>

/* Bounds of single calls to the engine, in milliseconds. Start is the slow one: 70 to 200 ms alone. */
#define BOX_CREATE_MS   10000
#define BOX_START_MS    20000
#define BOX_CALL_MS     3000
#define BOX_IMAGE_ID    128
#define BOX_ID_SIZE     65
#define BOX_NAME_SIZE   (sizeof BOX_NAME_PREFIX + BOX_SLOT_HEX)
#define BOX_REQUEST_MAX 2048

struct sandbox {
    struct engine *engine;
    char *image, *installation, *boot;
    char *profile;        /* system calls, as text */
    struct box_spec spec; /* the figures; names and folders are added for each box */
    size_t stderr_bytes;
    pthread_mutex_t lock;        /* a leaf: nothing is called under it */
    char image_id[BOX_IMAGE_ID]; /* under lock; "" before sandbox_prepare */
};

struct box {
    struct sandbox *sandbox;
    char name[BOX_NAME_SIZE];
    char id[BOX_ID_SIZE]; /* "" until the engine has told it */
    int attach;           /* -1: none */
    int pidfd;            /* -1: not started, or exited before it could be taken */
    bool create_unknown;  /* the engine may still be creating it */
    bool removed;         /* proven */
    int64_t made_ms;      /* what box_create and box_start took */
    struct cgroup cgroup;
    int64_t cpu_before_us; /* what the runtime itself used; -1: not known */
    struct frames frames;  /* of the attach: where the last read stopped */
    struct ring errors;    /* stderr */
};

/* What inspect says of a container's process. */
struct box_state {
    bool running;
    pid_t pid;
    int exit_code;
    bool oom_killed;
};

/* box_create from a given image and with its body handed out, for the probe; body may be NULL. */
MUST_USE int box_make(struct sandbox *sandbox, const char *image_id, const char *slot, const char *broker_dir,
                      const char *workspace_dir, const struct box_caps *caps, const struct box_bound *bound,
                      struct box **ret, json_t **body, struct err *err);
MUST_USE int box_inspect(struct box *box, int timeout_ms, json_t **ret, struct err *err);
MUST_USE int box_state_get(struct box *box, int timeout_ms, struct box_state *ret, struct err *err);
/* Has the first process exited? False without a pidfd. */
bool box_process_ended(const struct box *box, int wait_ms);
/* Through the pidfd; through the engine where the kernel does not permit it. Nothing when it is gone. */
void box_signal(struct box *box, int sig);

/* Removes a container by exact name or id, kills it first, and retries while a removal is under way, until
 * the deadline. 0: the engine no longer knows it. */
MUST_USE int container_remove(struct engine *engine, const char *name, int64_t deadline_mono_ms,
                              struct err *err);
