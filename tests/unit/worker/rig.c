#include "rig.h"

#include "base/clock.h"
#include "base/fs.h"
#include "deploy/worker/worker.h"
#include "schemas/protocol.h"
#include "tests/unit/scratch.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

json_t *rig_json(const char *text)
{
    struct err err;
    json_t *v = NULL;
    cr_assert_eq(json_parse(text, strlen(text), &v, &err), 0, "%s: %s", err.text, text);
    return v;
}

/* Reads until `done` says so or the peer ends; false when woken to stop. */
static bool read_more(struct rig *r, int fd, struct buf *b)
{
    struct pollfd p[2] = {{.fd = r->wake[0], .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    struct err err;

    if (poll(p, 2, 10000) <= 0 || p[0].revents || buf_reserve(b, 65536, &err) < 0)
        return false;
    ssize_t n = read(fd, b->data + b->len, 65536);
    if (n <= 0)
        return false;
    b->len += (size_t)n;
    b->data[b->len] = '\0';
    return true;
}

static void wait_for_end(struct rig *r, int fd)
{
    struct pollfd p[2] = {{.fd = r->wake[0], .events = POLLIN}, {.fd = fd, .events = POLLRDHUP}};
    poll(p, 2, 60000);
}

static void send_bytes(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        data += n;
        len -= (size_t)n;
    }
}

static void answer(int fd, const struct rig_step *step)
{
    char head[128];

    if (step->raw) {
        send_bytes(fd, step->raw, strlen(step->raw));
        return;
    }
    size_t len = step->body_len ? step->body_len : strlen(step->body);
    int n = snprintf(head, sizeof head, "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n\r\n",
                     step->status ? step->status : 200, len);
    send_bytes(fd, head, (size_t)n);
    send_bytes(fd, step->body, len);
}

static void serve(struct rig *r, int fd)
{
    struct buf b = BUF_INIT(4 << 20);
    char *end = NULL;
    struct err err;

    while (!end) {
        if (!read_more(r, fd, &b)) {
            buf_free(&b);
            return;
        }
        end = strstr(b.data, "\r\n\r\n");
    }
    size_t n = r->calls;
    const struct rig_step *step = &r->steps[n < r->step_count ? n : r->step_count - 1];
    size_t head_len = (size_t)(end + 4 - b.data);
    size_t want = strtoul(strstr(b.data, "Content-Length: ") + 16, NULL, 10);
    r->heads[n] = strndup(b.data, head_len);
    r->paths[n] = strndup(b.data + 5, strcspn(b.data + 5, " "));
    r->sizes[n] = want;
    while (!step->deaf && b.len - head_len < want && read_more(r, fd, &b))
        ;
    if (!step->deaf && json_parse(b.data + head_len, b.len - head_len, &r->requests[n], &err) < 0)
        r->requests[n] = json_null();
    __atomic_store_n(&r->calls, n + 1, __ATOMIC_RELEASE);
    if (step->hang)
        wait_for_end(r, fd);
    else
        answer(fd, step);
    buf_free(&b);
}

static void *broker(void *arg)
{
    struct rig *r = arg;

    for (;;) {
        struct pollfd p[2] = {{.fd = r->wake[0], .events = POLLIN}, {.fd = r->listen_fd, .events = POLLIN}};
        if (poll(p, 2, 60000) <= 0 || p[0].revents)
            return NULL;
        int fd = accept4(r->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            return NULL;
        if (r->calls < RIG_CALLS)
            serve(r, fd);
        close(fd);
    }
}

void rig_start(struct rig *r, const struct rig_step *steps, size_t count)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    pthread_t thread;

    *r = (struct rig){.steps = steps, .step_count = count};
    snprintf(r->dir, sizeof r->dir, "/tmp/cloister-worker-XXXXXX");
    cr_assert_not_null(mkdtemp(r->dir));
    snprintf(r->work, sizeof r->work, "%s/workspace", r->dir);
    snprintf(r->sock, sizeof r->sock, "%s/broker.sock", r->dir);
    cr_assert_eq(mkdir(r->work, 0700), 0);
    strcpy(at.sun_path, r->sock);
    r->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(r->listen_fd, (struct sockaddr *)&at, sizeof at), 0);
    cr_assert_eq(listen(r->listen_fd, 16), 0);
    cr_assert_eq(pipe2(r->wake, O_CLOEXEC), 0);
    cr_assert_eq(pthread_create(&thread, NULL, broker, r), 0);
    r->thread = thread;
}

void rig_script(struct rig *r, const struct rig_step *steps, size_t count)
{
    for (size_t i = 0; i < r->calls; i++) {
        json_decref(r->requests[i]);
        free(r->paths[i]);
        free(r->heads[i]);
        r->requests[i] = NULL;
    }
    r->steps = steps;
    r->step_count = count;
    __atomic_store_n(&r->calls, 0, __ATOMIC_RELEASE);
}

bool rig_wait_calls(struct rig *r, size_t calls)
{
    int64_t deadline = clock_mono_ms() + 5000;

    while (__atomic_load_n(&r->calls, __ATOMIC_ACQUIRE) < calls) {
        if (clock_left_ms(deadline) == 0)
            return false;
        poll(NULL, 0, 1);
    }
    return true;
}

/* Answers live until rig_done. */
static char *answers[64];
static size_t answer_count;

static void free_answers(void)
{
    while (answer_count > 0)
        free(answers[--answer_count]);
}

void rig_done(struct rig *r)
{
    struct err err;

    cr_assert_eq(write(r->wake[1], "x", 1), 1);
    pthread_join((pthread_t)r->thread, NULL);
    rig_script(r, NULL, 0);
    free_answers();
    close(r->listen_fd);
    close(r->wake[0]);
    close(r->wake[1]);
    cr_assert_eq(fs_remove_tree(AT_FDCWD, r->dir, &err), 0, "%s", err.text);
}

char *rig_turn(const struct rig *r, const char *changes)
{
    json_t *turn =
        json_pack("{s:i, s:s, s:s, s:{s:s, s:s}, s:s, s:s, s:s, s:s, s:i}", "version", 1, "id", "turn_1",
                  "text", "hello", "speaker", "id", "u1", "name", "Ann", "model", "m", "prompt", "Be kind.",
                  "time_zone", "Europe/Berlin", "workspace", r->work, "deadline_ms", 10000);
    json_t *over = changes ? rig_json(changes) : json_object(), *value;
    const char *key;
    struct err err;
    char *text = NULL;

    json_object_foreach(over, key, value) {
        if (json_is_null(value))
            json_object_del(turn, key);
        else
            json_object_set(turn, key, value);
    }
    cr_assert_eq(json_text(turn, &text, &err), 0);
    json_decref(over);
    json_decref(turn);
    return text;
}

json_t *rig_run(struct rig *r, const char *line, int *exit_code)
{
    int in = memfd_create("in", MFD_CLOEXEC), out = memfd_create("out", MFD_CLOEXEC);
    struct worker w = {.in_fd = in, .out_fd = out, .stop_fd = -1, .socket_path = r->sock};
    struct worker_reply reply;
    struct err err;

    cr_assert_eq(write(in, line, strlen(line)), (ssize_t)strlen(line));
    cr_assert_eq(write(in, "\n", 1), 1);
    lseek(in, 0, SEEK_SET);
    int code = worker_run(&w);
    off_t len = lseek(out, 0, SEEK_END);
    char *text = calloc(1, (size_t)len + 1);
    cr_assert_eq(pread(out, text, (size_t)len, 0), len);
    close(in);
    close(out);
    cr_assert(len > 1 && strchr(text, '\n') == text + len - 1, "exactly one line: %s", text);
    cr_assert_eq(worker_reply_parse(text, (size_t)len - 1, &reply, &err), 0, "%s", err.text);
    cr_assert_eq(code, reply.ok ? 0 : 1);
    if (exit_code)
        *exit_code = code;
    free(text);
    return reply.reply;
}

json_t *rig_run_turn(struct rig *r, const char *changes, int *exit_code)
{
    char *line = rig_turn(r, changes);
    json_t *reply = rig_run(r, line, exit_code);

    free(line);
    return reply;
}

char *rig_file(const struct rig *r, const char *name)
{
    char path[256];
    struct buf b = BUF_INIT(4 << 20);
    struct err err;

    snprintf(path, sizeof path, "%s/%s", r->work, name);
    if (fs_read(path, &b, &err) < 0)
        return NULL;
    return b.data ? buf_steal(&b) : strdup("");
}

void rig_put(const struct rig *r, const char *name, const char *text)
{
    char path[256];

    snprintf(path, sizeof path, "%s/.cloister", r->work);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s", r->work, name);
    scratch_write(path, text, strlen(text));
}

static const char *answer_text(json_t *message)
{
    json_t *body = json_pack("{s:[{s:o, s:s}], s:{s:i}}", "choices", "message", message, "finish_reason",
                             "stop", "usage", "total_tokens", 3);
    cr_assert_lt(answer_count, sizeof answers / sizeof answers[0]);
    answers[answer_count] = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    return answers[answer_count++];
}

const char *say(const char *text)
{
    return answer_text(json_pack("{s:s, s:s}", "role", "assistant", "content", text));
}

const char *call(const char *calls)
{
    json_t *list = rig_json(calls), *one, *made = json_array();
    size_t i;

    json_array_foreach(list, i, one) {
        json_array_append_new(made, json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", json_array_get(one, 0),
                                              "type", "function", "function", "name", json_array_get(one, 1),
                                              "arguments", json_array_get(one, 2)));
    }
    json_decref(list);
    return answer_text(json_pack("{s:s, s:n, s:o}", "role", "assistant", "content", "tool_calls", made));
}

const json_t *rig_message(const struct rig *r, size_t request, int from_end)
{
    json_t *messages = json_object_get(r->requests[request], "messages");
    return json_array_get(messages, json_array_size(messages) - 1 - (size_t)from_end);
}

const char *system_of(const struct rig *r, size_t request)
{
    return json_str(json_array_get(json_object_get(r->requests[request], "messages"), 0), "content");
}

size_t message_count(const struct rig *r, size_t request)
{
    return json_array_size(json_object_get(r->requests[request], "messages"));
}

void expect_text(json_t *reply, const char *text)
{
    cr_assert_str_eq(json_str(reply, "text"), text);
    json_decref(reply);
}
