#include "worker.h"

#include "agent.h"
#include "history.h"
#include "note.h"
#include "reply.h"
#include "state.h"
#include "text.h"

#include "base/clock.h"
#include "schemas/schema.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>

/* How long a reader of the reply may hold it up. */
#define WRITE_TIMEOUT_MS 5000

/* The line without its newline. A worker that was started ahead waits here for as long as its input is open.
 */
static int read_line(const struct worker *w, struct buf *b, struct err *err)
{
    for (;;) {
        struct pollfd p[2] = {{.fd = w->stop_fd, .events = POLLIN}, {.fd = w->in_fd, .events = POLLIN}};
        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return err_errno(err, errno, "poll");
        if (p[0].revents)
            return err_set(err, ERR_CANCELED, "told to stop before the turn came");
        if (!p[1].revents)
            continue;
        size_t room = b->max - b->len, want = room < 65536 ? room : 65536;
        if (want == 0)
            return err_set(err, ERR_TOO_LARGE, "the turn is larger than %d KiB", LIMIT_TURN_LINE / 1024);
        if (buf_reserve(b, want, err) < 0)
            return -1;
        ssize_t n = read(w->in_fd, b->data + b->len, want);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n < 0)
            return err_errno(err, errno, "read the turn");
        char *newline = n > 0 ? memchr(b->data + b->len, '\n', (size_t)n) : NULL;
        b->len += (size_t)n;
        b->data[b->len] = '\0';
        if (newline && newline != b->data + b->len - 1)
            return err_set(err, ERR_INVALID, "more than one line came");
        if (newline)
            b->len--;
        if (b->len == 0 && n == 0)
            return err_set(err, ERR_INVALID, "no turn came");
        if (newline || n == 0)
            return 0;
    }
}

/* The messages of this turn: the text in its frame, or the caller's with repeated ids renamed. */
static int current_messages(const struct turn *turn, struct call_ids *ids, json_t **ret, struct err *err)
{
    CLEANUP(json_free) json_t *messages = NULL;
    CLEANUP(free_str) char *cut = NULL;

    if (turn->text) {
        if (text_cut(turn->text, LIMIT_WORKER_MESSAGE, &cut, err) < 0)
            return -1;
        messages = json_pack("[{s:s, s:s}]", "role", "user", "content", cut);
    } else {
        messages = json_clone(turn->messages);
    }
    if (!messages)
        return err_no_memory(err);
    if (call_ids_repair(ids, messages, err) < 0)
        return -1;
    *ret = json_steal(&messages);
    return 0;
}

/* What the next turn of the channel will know of this one. A reply is worth more than its place in the
 * history, so a failure is only noted. */
static void keep_history(int dirfd, const struct turn *turn, json_t *history, const struct agent_reply *reply)
{
    CLEANUP(buf_free) struct buf answer = BUF_INIT(LIMIT_STDOUT);
    struct err err;
    json_t *call;
    size_t i;
    int rc = buf_adds(&answer, reply->text, &err);

    if (!turn->text) {
        if (turn->reset && history_clear(dirfd, &err) < 0)
            note("the history was not cleared: %s", err.text);
        return;
    }
    json_array_foreach(reply->tool_calls, i, call) {
        if (rc == 0)
            rc = buf_addf(&answer, &err, "%s[called %s]", answer.len > 0 ? "\n" : "",
                          json_str(json_object_get(call, "function"), "name"));
    }
    if (rc < 0 ||
        history_add(history, turn->speaker_id, turn->speaker_name, turn->text, answer.data ? answer.data : "",
                    &err) < 0 ||
        history_save(dirfd, history, &err) < 0)
        note("the history was not stored: %s", err.text);
}

static int load_state(int dirfd, const struct turn *turn, struct memory *memory, json_t **history,
                      struct err *err)
{
    int rc = memory_load(dirfd, turn->speaker_id, memory, err);

    if (rc < 0)
        return -1;
    if (rc > 0)
        note("the memory starts afresh: %s", err->text);
    if (!turn->text || turn->reset) {
        *history = json_array();
        return *history ? 0 : err_no_memory(err);
    }
    rc = history_load(dirfd, history, err);
    if (rc > 0)
        note("the history starts afresh: %s", err->text);
    return rc < 0 ? -1 : 0;
}

static int run_turn(const struct turn *turn, const struct broker_link *link, char **ret_line, struct err *err)
{
    CLEANUP(close_fd) int dirfd = state_open(turn->workspace, err);
    CLEANUP(memory_free) struct memory memory = {0};
    CLEANUP(tools_free) struct tools tools = {0};
    CLEANUP(call_ids_free) struct call_ids ids = {0};
    CLEANUP(context_free) struct context context = {0};
    CLEANUP(agent_reply_free) struct agent_reply reply = {0};
    CLEANUP(json_free) json_t *history = NULL;
    CLEANUP(json_free) json_t *current = NULL;

    if (dirfd < 0 || load_state(dirfd, turn, &memory, &history, err) < 0)
        return -1;
    if (tools_build(turn, &tools, err) < 0 || call_ids_new(&ids, err) < 0)
        return -1;
    if (current_messages(turn, &ids, &current, err) < 0 ||
        context_new(turn, &memory, &tools, history, json_steal(&current), &context, err) < 0)
        return -1;

    struct runner runner = {.memory = &memory, .link = link, .next_rpc_id = 1};
    struct agent agent = {.context = &context, .runner = &runner, .tools = &tools, .link = link, .ids = &ids};
    if (agent_run(&agent, &reply, err) < 0)
        return -1;
    if (reply_success(reply.text, reply.tool_calls, ret_line, err) < 0)
        return -1;
    keep_history(dirfd, turn, history, &reply);
    return 0;
}

static int read_and_run(const struct worker *w, char **ret_line, struct err *err)
{
    CLEANUP(buf_free) struct buf line = BUF_INIT(LIMIT_TURN_LINE + 1); /* with its newline */
    CLEANUP(turn_free) struct turn turn = {0};

    /* Loads the schemas while a worker that was started ahead has nothing else to do. */
    if (!schema_get("worker_turn"))
        return err_set(err, ERR_INTERNAL, "the schema of a turn is not usable");
    if (read_line(w, &line, err) < 0)
        return -1;
    int64_t began = clock_mono_ms();
    if (turn_parse(line.data, line.len, &turn, err) < 0)
        return -1;
    struct broker_link link = {
        .socket_path = w->socket_path, .stop_fd = w->stop_fd, .deadline_mono_ms = began + turn.deadline_ms};
    return run_turn(&turn, &link, ret_line, err);
}

int worker_run(const struct worker *w)
{
    CLEANUP(free_str) char *line = NULL;
    struct err err = {0};

    int rc = read_and_run(w, &line, &err);
    if (rc < 0)
        note("%s: %s", err_name(err.code), err.text);
    if (reply_write(w->out_fd, rc == 0 ? line : reply_failure(err.code), WRITE_TIMEOUT_MS, &err) < 0) {
        note("%s", err.text);
        return 1;
    }
    return rc == 0 ? 0 : 1;
}

int worker_main(int in_fd, int out_fd, const char *socket_path)
{
    sigset_t stop;

    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    signal(SIGPIPE, SIG_IGN);
    CLEANUP(close_fd) int stop_fd = -1;
    if (sigprocmask(SIG_BLOCK, &stop, NULL) < 0 || (stop_fd = signalfd(-1, &stop, SFD_CLOEXEC)) < 0) {
        note("signalfd: errno %d", errno);
        return 1;
    }
    struct worker w = {.in_fd = in_fd, .out_fd = out_fd, .stop_fd = stop_fd, .socket_path = socket_path};
    return worker_run(&w);
}
