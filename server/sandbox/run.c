#include "sandbox/box.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define CHUNK     (64 * 1024)
#define DRAIN_MS  2000 /* output that is still under way after the process has exited */
#define STATUS_MS 2500 /* until the engine has noticed that exit */
#define REST_MS   500  /* for output that an engine held back, once it answers again */
#define PAUSE_MS  5
#define LAST_MS   2 /* for what left the worker before its reply, through the other pipe */

/* One run of a box. `end` is decided once; `done` says that nothing is waited for any more. */
struct run {
    struct box *box;
    const struct box_run_limits *limits;
    struct box_result *result;
    const char *input;
    size_t input_left;
    char *chunk;
    bool input_open, output_open; /* directions of the attach */
    bool exited;                  /* the first process has */
    bool decided, done;
    int64_t until; /* the next moment at which something changes by itself, monotonic ms */
    enum { UNTIL_DEADLINE, UNTIL_KILL, UNTIL_DRAINED } until_what;
};

static void decide(struct run *r, enum box_end end)
{
    if (!r->decided)
        r->result->end = end;
    r->decided = true;
}

static void take_usage(struct run *r)
{
    struct box_result *ret = r->result;
    struct cgroup_usage usage = CGROUP_UNKNOWN;

    if (r->box->pidfd >= 0)
        cgroup_read(&r->box->cgroup, &usage);
    if (usage.cpu_us >= 0 && r->box->cpu_before_us >= 0)
        ret->cpu_us = usage.cpu_us - r->box->cpu_before_us;
    ret->memory_peak = usage.memory_peak;
    ret->oom_kills = usage.oom_kills > 0 ? (unsigned)usage.oom_kills : 0;
    ret->pids_hits = usage.pids_hits > 0 ? (unsigned)usage.pids_hits : 0;
}

static void finish(struct run *r, enum box_end end)
{
    decide(r, end);
    if (!r->exited)
        take_usage(r);
    r->done = true;
}

static void kill_and_finish(struct run *r, enum box_end end)
{
    finish(r, end);
    if (!r->exited)
        box_signal(r->box, SIGKILL);
}

static void lose(struct run *r, const char *why)
{
    finish(r, BOX_ENGINE_LOST);
    snprintf(r->result->note, sizeof r->result->note, "%s", why);
}

static void note_exit(struct run *r)
{
    take_usage(r); /* at once: the cgroup is about to go */
    r->exited = true;
    r->until = clock_mono_ms() + DRAIN_MS;
    r->until_what = UNTIL_DRAINED;
}

/* The attach has ended. Three reasons: the process exited, the engine went away, or the process closed its
 * outputs and lives on; only the engine can tell the last two apart (docker.md 14). */
static void output_ended(struct run *r)
{
    struct box_state state;
    struct err err;

    r->output_open = false;
    if (r->exited)
        return;
    if (box_process_ended(r->box, 0)) {
        note_exit(r);
        return;
    }
    if (box_state_get(r->box, BOX_CALL_MS, &state, &err) < 0)
        lose(r, err.text);
    else if (!state.running)
        note_exit(r);
}

/* A piece of stdout: kept up to max_stdout; the first newline ends the reply. */
static int take_stdout(struct run *r, const char *data, size_t len, struct err *err)
{
    struct buf *out = &r->result->out;
    size_t room = out->max - out->len;

    r->result->out_total += len;
    if (r->decided) /* past the deadline: what fits is kept, the rest only drained */
        return buf_add(out, data, len < room ? len : room, err);
    const char *newline = memchr(data, '\n', len < room + 1 ? len : room + 1);
    size_t take = newline ? (size_t)(newline - data) : len < room ? len : room;
    if (buf_add(out, data, take, err) < 0)
        return -1;
    if (newline)
        finish(r, BOX_REPLY);
    else if (take < len)
        kill_and_finish(r, BOX_OUTPUT_LIMIT);
    return 0;
}

static int take_stderr(struct run *r, const char *data, size_t len, struct err *err)
{
    if (r->limits && r->limits->on_stderr)
        r->limits->on_stderr(r->limits->arg, data, len);
    return ring_add(&r->box->errors, data, len, err);
}

/* What stands behind a complete reply in the same read may still be stderr. */
static int take_bytes(struct run *r, const char *data, size_t len, struct err *err)
{
    struct frames_piece piece;
    int more, rc = 0;

    while (rc == 0 && (more = frames_next(&r->box->frames, &data, &len, &piece, err)) != 0) {
        if (more < 0 && !r->done)
            lose(r, err->text);
        if (more < 0)
            return 0;
        if (piece.stream == FRAMES_STDERR)
            rc = take_stderr(r, piece.data, piece.len, err);
        else if (!r->done)
            rc = take_stdout(r, piece.data, piece.len, err);
        else
            r->result->out_total += piece.len;
    }
    return rc;
}

/* One read a turn of the loop, so that a flood cannot keep the deadline from being seen. */
static int read_some(struct run *r, struct err *err)
{
    ssize_t n = recv(r->box->attach, r->chunk, CHUNK, 0);

    if (n > 0)
        return take_bytes(r, r->chunk, (size_t)n, err);
    if (n == 0 || (errno != EAGAIN && errno != EINTR))
        output_ended(r);
    return 0;
}

/* A worker that closes its stdin or exits makes the rest of the input moot, which is no error here. */
static void write_some(struct run *r)
{
    ssize_t n = 0;

    if (r->input_left > 0) {
        n = send(r->box->attach, r->input, r->input_left, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
    }
    if (n > 0) {
        r->input += n;
        r->input_left -= (size_t)n;
    }
    if (n < 0 || r->input_left == 0) {
        shutdown(r->box->attach, SHUT_WR);
        r->input_open = false;
    }
}

static void time_is_up(struct run *r)
{
    switch (r->until_what) {
    case UNTIL_DEADLINE:
        decide(r, BOX_TIMEOUT);
        r->until = clock_mono_ms() + r->limits->grace_ms;
        r->until_what = UNTIL_KILL;
        box_signal(r->box, SIGTERM);
        break;
    case UNTIL_KILL:
        kill_and_finish(r, BOX_TIMEOUT);
        break;
    case UNTIL_DRAINED:
        finish(r, BOX_EXITED);
        break;
    }
}

static int step(struct run *r, struct err *err)
{
    enum { ATTACH, PROCESS, ABORT };
    struct pollfd p[] = {
        [ATTACH] = {.fd = r->output_open || r->input_open ? r->box->attach : -1},
        [PROCESS] = {.fd = r->exited ? -1 : r->box->pidfd, .events = POLLIN},
        [ABORT] = {.fd = r->limits->abort_fd, .events = POLLIN},
    };

    if (r->output_open)
        p[ATTACH].events |= POLLIN;
    else
        p[ATTACH].fd = -1; /* nobody would read what the input leads to */
    if (r->input_open)
        p[ATTACH].events |= POLLOUT;
    if (poll(p, ARRAY_LEN(p), clock_left_ms(r->until)) < 0)
        return errno == EINTR ? 0 : err_errno(err, errno, "poll");
    if (p[ABORT].revents) {
        kill_and_finish(r, BOX_ABORTED);
        return 0;
    }
    if (p[PROCESS].revents)
        note_exit(r);
    if (p[ATTACH].revents & POLLOUT)
        write_some(r);
    if ((p[ATTACH].revents & (POLLIN | POLLHUP | POLLERR)) && read_some(r, err) < 0)
        return -1;
    if (!r->done && r->exited && !r->output_open)
        finish(r, BOX_EXITED);
    if (!r->done && clock_left_ms(r->until) == 0)
        time_is_up(r);
    return 0;
}

/* The exit code is with the engine, a moment after the exit. 128 + N is how it tells signal N. */
static void take_status(struct run *r)
{
    int64_t deadline = clock_mono_ms() + STATUS_MS;
    struct box_result *ret = r->result;
    struct box_state state;
    struct err err;

    do {
        int left = clock_left_ms(deadline);
        if (box_state_get(r->box, left > 0 ? left : 1, &state, &err) < 0) {
            ret->end = BOX_ENGINE_LOST;
            snprintf(ret->note, sizeof ret->note, "%s", err.text);
            return;
        }
        if (state.running)
            clock_sleep_ms(PAUSE_MS);
    } while (state.running && clock_left_ms(deadline) > 0);
    if (state.running)
        return;
    if (state.exit_code > 128 && state.exit_code <= 128 + 64)
        ret->signal = state.exit_code - 128;
    else
        ret->exit_code = state.exit_code;
    ret->oom = ret->signal == SIGKILL && (state.oom_killed || ret->oom_kills > 0);
}

/* The process is dead, and with it everyone who could write, but its output has not ended: the engine hung
 * and did not hand it on. Now that it has answered, what it held comes at once; a reply may be in it. */
static int take_rest(struct run *r, struct err *err)
{
    struct box_result *ret = r->result;
    int rc = 0;

    r->decided = r->done = false;
    r->until = clock_mono_ms() + REST_MS;
    while (rc == 0 && !r->done)
        rc = step(r, err);
    if (rc == 0 && r->output_open && ret->end == BOX_EXITED && ret->exit_code == 0) {
        ret->end = BOX_ENGINE_LOST;
        snprintf(ret->note, sizeof ret->note, "the engine did not hand on the output of %s", r->box->name);
    }
    return rc;
}

/* A reply often overtakes what the worker had written on stderr before. */
static int take_last(struct run *r, struct err *err)
{
    int64_t deadline = clock_mono_ms() + LAST_MS;
    struct pollfd p = {.fd = r->box->attach, .events = POLLIN};
    int rc = 0, left;

    while (rc == 0 && (left = clock_left_ms(deadline)) > 0 && poll(&p, 1, left) > 0) {
        ssize_t n = recv(r->box->attach, r->chunk, CHUNK, 0);
        if (n <= 0)
            break;
        rc = take_bytes(r, r->chunk, (size_t)n, err);
    }
    return rc;
}

static int take_errors(struct run *r, struct err *err)
{
    buf_free(&r->result->err);
    r->result->err_total = r->box->errors.total;
    return r->box->errors.total > 0 ? ring_copy(&r->box->errors, &r->result->err, err) : 0;
}

int box_run(struct box *box, const char *input, size_t input_len, const struct box_run_limits *limits,
            struct box_result *ret, struct err *err)
{
    struct run r = {.box = box,
                    .limits = limits,
                    .result = ret,
                    .input = input,
                    .input_left = input_len,
                    .input_open = true,
                    .output_open = true,
                    .until = limits->deadline_mono_ms,
                    .until_what = UNTIL_DEADLINE};

    *ret = (struct box_result){.out = BUF_INIT(limits->max_stdout),
                               .err = BUF_INIT(box->errors.size),
                               .exit_code = -1,
                               .cpu_us = -1,
                               .memory_peak = -1,
                               .start_ms = box->made_ms};
    if (box->attach < 0)
        return err_set(err, ERR_SYSTEM, "%s is not attached", box->name);
    r.chunk = malloc(CHUNK);
    int rc = r.chunk ? 0 : err_no_memory(err);
    if (rc == 0 && box->pidfd < 0)
        note_exit(&r); /* before box_start could take hold of it */
    while (rc == 0 && !r.done)
        rc = step(&r, err);
    if (rc == 0 && ret->end == BOX_REPLY)
        rc = take_last(&r, err);
    if (rc == 0 && ret->end == BOX_EXITED)
        take_status(&r);
    if (rc == 0 && ret->end == BOX_EXITED && r.output_open)
        rc = take_rest(&r, err);
    if (rc == 0)
        rc = take_errors(&r, err);
    free(r.chunk);
    return rc;
}

int box_last_words(struct box *box, int timeout_ms, struct box_result *ret, struct err *err)
{
    struct run r = {
        .box = box, .result = ret, .exited = true, .decided = true, .done = ret->end == BOX_REPLY};
    int64_t deadline = clock_mono_ms() + timeout_ms;
    struct pollfd p = {.fd = box->attach, .events = POLLIN};
    ssize_t n = 1;
    int rc = 0;

    if (box->attach < 0)
        return 0;
    box_signal(box, SIGKILL);
    r.chunk = malloc(CHUNK);
    if (!r.chunk)
        return err_no_memory(err);
    while (rc == 0 && n != 0 && poll(&p, 1, clock_left_ms(deadline)) > 0) {
        n = recv(box->attach, r.chunk, CHUNK, 0);
        if (n > 0)
            rc = take_bytes(&r, r.chunk, (size_t)n, err);
        else if (n < 0 && errno != EAGAIN && errno != EINTR)
            n = 0;
    }
    if (rc == 0)
        rc = take_errors(&r, err);
    free(r.chunk);
    return rc;
}

void box_result_free(struct box_result *result)
{
    buf_free(&result->out);
    buf_free(&result->err);
}
