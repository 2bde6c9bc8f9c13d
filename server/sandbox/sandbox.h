/* sandbox/sandbox.h: sealed containers (mission.md section 2): made, run once, proven dead.
 *
 * sandbox_* and the box_* of different boxes may be called from many threads at once; all box_* of one box by
 * one thread at a time. Nothing here logs: error texts may quote the engine and are for the server log only.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <sys/types.h>

/* Copied by sandbox_new. */
struct sandbox_config {
    const char *engine_socket; /* absolute path */
    const char *image;         /* tag; resolved to an id by sandbox_prepare */
    const char *installation;  /* labels of every container; installation separates services on one engine */
    const char *boot;          /* differs for every start of the service */
    uid_t uid;                 /* the service's own; 0 is refused */
    gid_t gid;
    unsigned memory_mb;  /* at least 64 */
    double cpus;         /* at least 0.01 */
    unsigned pids;       /* at least 8 */
    unsigned nofile;     /* 256 */
    unsigned tmp_mb;     /* 64 */
    size_t stderr_bytes; /* kept of a box's stderr, the last ones; 0: it is only counted */
};

struct sandbox;
struct box;

/* Checks every figure (ERR_CONFIG names the rule); no I/O. */
MUST_USE int sandbox_new(const struct sandbox_config *config, struct sandbox **ret, struct err *err);
/* All its boxes must have been freed. Accepts NULL. */
void sandbox_free(struct sandbox *sandbox);

/* Agrees on an API version, resolves the image's tag to its id, and makes, inspects, verifies and removes one
 * probe container, which is never started, with these two folders of the host. At the start, at a reload and
 * after an outage; boxes made later use the new id. ERR_ENGINE_AWAY; ERR_IMAGE: the image is missing or not
 * usable; ERR_ENGINE: the engine refused, warned, or made something weaker than asked. */
MUST_USE int sandbox_prepare(struct sandbox *sandbox, const char *probe_broker_dir,
                             const char *probe_workspace_dir, struct err *err);

/* Does the engine answer? At most 2 s. ERR_ENGINE_AWAY, ERR_ENGINE. */
MUST_USE int sandbox_ping(struct sandbox *sandbox, struct err *err);

/* Removes what this installation left behind: every container with its label that `keep` refuses. `slot` and
 * `boot` are the labels ("" when absent). `keep` runs on the calling thread without a lock held. At most 400
 * containers may be kept. Never touches another installation's. One that cannot be removed is no failure of
 * the sweep, which goes on: ret tells, on failure too. ERR_ENGINE_AWAY, ERR_ENGINE: they cannot be listed. */
struct sandbox_swept {
    unsigned removed, left; /* proven gone; not removed */
    struct err why;         /* of the first that is left */
};
MUST_USE int sandbox_sweep(struct sandbox *sandbox,
                           bool (*keep)(const char *slot, const char *boot, void *arg), void *arg,
                           struct sandbox_swept *ret, struct err *err);

/* What one box may use at most; a 0 member leaves the sandbox's own. They only lower: the caller has checked.
 */
struct box_caps {
    unsigned memory_mb, pids;
    double cpus;
};

/* Until when the caller lets box_create and box_start wait for the engine, beside their own bounds. */
struct box_bound {
    int64_t deadline_mono_ms; /* clock_mono_ms(); past it they fail with ERR_TIMEOUT */
    int abort_fd;             /* readable: they fail with ERR_CANCELED, within about a second; -1: none */
};

/* Creates the container `cloister-<slot>` (slot: 32 hex digits, chosen by the caller and never used twice)
 * and attaches to it; it does not run yet. Both folders must be canonical; caps and bound may be NULL.
 * OWNERSHIP: whenever *ret is not NULL afterwards, on failure as well, something may exist on the engine:
 * call box_remove until it returns 0, then box_free. *ret is NULL only when nothing was asked of the engine.
 * ERR_CONFIG: not prepared, bad slot or folders; ERR_ENGINE_AWAY; ERR_IMAGE: the image is gone; ERR_ENGINE:
 * refused, or created with warnings; ERR_TIMEOUT, ERR_CANCELED: the caller's bound.
 */
MUST_USE int box_create(struct sandbox *sandbox, const char *slot, const char *broker_dir,
                        const char *workspace_dir, const struct box_caps *caps, const struct box_bound *bound,
                        struct box **ret, struct err *err);

/* Starts it and takes hold of its first process. A container that has exited already is no error: box_run
 * tells. bound may be NULL. After a failure: box_remove. ERR_ENGINE_AWAY, ERR_ENGINE, ERR_TIMEOUT,
 * ERR_CANCELED. */
MUST_USE int box_start(struct box *box, const struct box_bound *bound, struct err *err);

/* A box that an earlier run of the service made for this slot, known by nothing but its name: for box_remove
 * and box_free only. ERR_CONFIG: no such slot can be. */
MUST_USE int box_adopt(struct sandbox *sandbox, const char *slot, struct box **ret, struct err *err);

const char *box_container_id(const struct box *box); /* 64 hex digits; "" before it is known; borrowed */

enum box_end {
    BOX_REPLY,        /* a line of stdout is complete: `out`, without its newline */
    BOX_EXITED,       /* the process ended first; what stdout held is in `out` */
    BOX_TIMEOUT,      /* the deadline passed; SIGTERM, and SIGKILL after the grace, were sent */
    BOX_ABORTED,      /* abort_fd became readable; SIGKILL was sent */
    BOX_OUTPUT_LIMIT, /* stdout went past max_stdout without a newline; SIGKILL was sent */
    BOX_ENGINE_LOST,  /* the engine went away, or the container was removed by another hand; see `note` */
};

struct box_run_limits {
    int64_t deadline_mono_ms; /* clock_mono_ms() */
    int grace_ms;             /* from SIGTERM to SIGKILL */
    int abort_fd;             /* an eventfd; readable means: SIGKILL at once; -1: none */
    size_t max_stdout;        /* bytes, at most LIMIT_STDOUT */
    /* Every piece of stderr as it comes, on the calling thread; any bytes; short. NULL: nobody listens. */
    void (*on_stderr)(void *arg, const char *data, size_t len);
    void *arg;
};

/* Owned by the caller; box_result_free after box_run, whatever it returned. What the cgroup tells (pids_hits,
 * oom_kills, cpu_us, memory_peak) is lost with it some milliseconds after the process has exited: it may be
 * unknown of a worker that exits on the spot, and is always unknown of one that had exited before box_start
 * returned. */
struct box_result {
    enum box_end end;
    struct buf out;      /* the reply, or what stdout held; any bytes */
    uint64_t out_total;  /* bytes of stdout seen, kept or not */
    struct buf err;      /* the last stderr_bytes of stderr; any bytes */
    uint64_t err_total;  /* bytes of stderr seen */
    int exit_code;       /* 0..255; -1: not known, or ended by a signal */
    int signal;          /* the signal that ended the process; 0: none or not known */
    bool oom;            /* the first process was killed for memory */
    unsigned oom_kills;  /* processes of the container killed for memory */
    unsigned pids_hits;  /* times the pids limit refused a process */
    int64_t cpu_us;      /* since box_start; -1: not known */
    int64_t memory_peak; /* bytes; -1: not known */
    int64_t start_ms;    /* what box_create and box_start took */
    char note[256];      /* for the server log: why BOX_ENGINE_LOST; "" otherwise */
};

/* Writes `input` to stdin, ends it, and reads until one of the endings above; once per box. Never waits
 * longer than deadline + grace + 5 s. Returns -1 only for ERR_NO_MEMORY and ERR_SYSTEM. */
MUST_USE int box_run(struct box *box, const char *input, size_t input_len,
                     const struct box_run_limits *limits, struct box_result *ret, struct err *err);
void box_result_free(struct box_result *result);

/* After box_run, where what the worker wrote is to be kept: kills it, and adds what it had written before and
 * is still under way to `ret`; of stdout behind a complete reply only the count. Until the end of the output,
 * at most timeout_ms. ERR_NO_MEMORY. */
MUST_USE int box_last_words(struct box *box, int timeout_ms, struct box_result *ret, struct err *err);

/* Kills, removes by exact name, and proves death: the engine no longer knows the container and the kernel
 * says that its first process is dead (with it, all of its pid namespace). 0: proven; idempotent. -1: not
 * proven: call again later, and leave the workspace alone until then. One call takes at most two times
 * LIMIT_REMOVE_TRY_MS. */
MUST_USE int box_remove(struct box *box, struct err *err);

/* Memory and descriptors only. Accepts NULL. */
void box_free(struct box *box);
