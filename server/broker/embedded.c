#include "broker/embedded.h"

#include "base/clock.h"
#include "base/limits.h"
#include "schemas/model_input.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Where a script stands: read from the messages alone, so that nothing is kept between calls. */
struct talk {
    const char *user;   /* text of the last user message, "" when there is none */
    size_t tool_turns;  /* assistant messages with tool calls after it */
    const char *result; /* text of the last message when it is a tool's, else NULL */
};

static struct talk read_talk(const json_t *messages)
{
    struct talk t = {.user = ""};

    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i);
        const char *role = json_str(m, "role");
        if (strcmp(role, "user") == 0) {
            t.user = json_str(m, "content");
            t.tool_turns = 0;
        }
        if (json_array_size(json_object_get(m, "tool_calls")) > 0)
            t.tool_turns++;
        t.result = strcmp(role, "tool") == 0 ? json_str(m, "content") : NULL;
    }
    return t;
}

/* One line of a script. */
struct command {
    enum { TEXT, SLEEP, CALL } kind;
    long ms;
    char name[65];
    const char *arguments; /* inside the line */
    size_t arguments_len;
};

static bool is_offered(const json_t *tools, const char *name)
{
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (strcmp(json_str(json_object_get(json_array_get(tools, i), "function"), "name"), name) == 0)
            return true;
    return false;
}

static bool is_object(const char *text, size_t len)
{
    CLEANUP(json_free) json_t *value = NULL;
    struct err err;

    return json_parse(text, len, &value, &err) == 0 && json_is_object(value);
}

static struct command read_call(const char *line, size_t len, const json_t *tools)
{
    struct command c = {.kind = CALL, .arguments = "{}", .arguments_len = 2};
    size_t name_len = 0;

    while (name_len < len && line[name_len] != ' ')
        name_len++;
    if (name_len == 0 || name_len >= sizeof c.name)
        return (struct command){.kind = TEXT};
    memcpy(c.name, line, name_len);
    if (name_len + 1 < len) {
        c.arguments = line + name_len + 1;
        c.arguments_len = len - name_len - 1;
    }
    if (!is_offered(tools, c.name) || !is_object(c.arguments, c.arguments_len))
        return (struct command){.kind = TEXT};
    return c;
}

static struct command read_command(const char *line, size_t len, const json_t *tools)
{
    if (len > 0 && line[len - 1] == '\r')
        len--;
    if (len > 6 && strncmp(line, "/call ", 6) == 0)
        return read_call(line + 6, len - 6, tools);
    size_t digits = len > 7 ? strspn(line + 7, "0123456789") : 0;
    if (len > 7 && strncmp(line, "/sleep ", 7) == 0 && digits == len - 7 && digits <= 9) {
        return (struct command){.kind = SLEEP, .ms = strtol(line + 7, NULL, 10)};
    }
    return (struct command){.kind = TEXT};
}

long script_sleep(long asked, long slept)
{
    long left = LIMIT_SCRIPT_SLEEP_MS - slept;

    return asked < left ? asked : left;
}

static int sleep_ms(long ms, int64_t deadline, int cancel_fd, struct err *err)
{
    int64_t end = clock_mono_ms() + ms;
    bool late = end > deadline;

    if (late)
        end = deadline;
    for (;;) {
        struct pollfd cancel = {.fd = cancel_fd, .events = POLLIN};
        int ready = poll(&cancel, 1, clock_left_ms(end));
        if (ready > 0)
            return err_set(err, ERR_CANCELED, "the call is not wanted any more");
        if (ready < 0 && errno != EINTR)
            return err_errno(err, errno, "poll");
        if (clock_left_ms(end) == 0)
            return late ? err_set(err, ERR_TIMEOUT, "the script sleeps past the deadline") : 0;
    }
}

/* Runs the script from where it stands to its next call, which is returned, or to its end (TEXT). */
static int run_script(const struct talk *talk, const json_t *tools, int64_t deadline, int cancel_fd,
                      struct command *ret, struct err *err)
{
    size_t calls = 0;
    long slept = 0;

    *ret = (struct command){.kind = TEXT};
    for (const char *line = talk->user; *line;) {
        size_t len = strcspn(line, "\n");
        struct command c = read_command(line, len, tools);
        if (c.kind == SLEEP && calls == talk->tool_turns) {
            long ms = script_sleep(c.ms, slept);
            if (sleep_ms(ms, deadline, cancel_fd, err) < 0)
                return -1;
            slept += ms;
        }
        if (c.kind == CALL && calls++ == talk->tool_turns) {
            *ret = c;
            return 0;
        }
        line += len + (line[len] == '\n');
    }
    return 0;
}

static json_t *calling(const struct command *c, size_t number)
{
    char id[40];

    snprintf(id, sizeof id, "call_%zu", number);
    return json_pack("{s:s, s:s, s:[{s:s, s:s, s:{s:s, s:s%}}]}", "role", "assistant", "content", "",
                     "tool_calls", "id", id, "type", "function", "function", "name", c->name, "arguments",
                     c->arguments, c->arguments_len);
}

static size_t tokens_of(const json_t *messages)
{
    size_t bytes = 0;

    for (size_t i = 0; i < json_array_size(messages); i++)
        bytes += json_string_length(json_object_get(json_array_get(messages, i), "content"));
    return bytes / 4 + 1;
}

int embedded_answer(enum embedded_model model, const json_t *messages, const json_t *tools, int64_t deadline,
                    int cancel_fd, struct buf *answer, struct err *err)
{
    struct talk talk = read_talk(messages);
    struct command next = {.kind = TEXT};
    CLEANUP(free_str) char *text = NULL;

    if (model == EMBEDDED_SCRIPT && run_script(&talk, tools, deadline, cancel_fd, &next, err) < 0)
        return -1;
    const char *saying = model == EMBEDDED_SCRIPT && talk.result ? talk.result : talk.user;
    json_t *message = next.kind == CALL ? calling(&next, talk.tool_turns)
                                        : json_pack("{s:s, s:s}", "role", "assistant", "content", saying);
    size_t prompt = tokens_of(messages), completion = strlen(saying) / 4 + 1;
    CLEANUP(json_free)
    json_t *whole = json_pack("{s:[{s:i, s:o, s:s}], s:{s:I, s:I, s:I}}", "choices", "index", 0, "message",
                              message, "finish_reason", next.kind == CALL ? "tool_calls" : "stop", "usage",
                              "prompt_tokens", (json_int_t)prompt, "completion_tokens",
                              (json_int_t)completion, "total_tokens", (json_int_t)(prompt + completion));
    if (!whole)
        return err_no_memory(err);
    if (json_text(whole, &text, err) < 0)
        return -1;
    return buf_adds(answer, text, err);
}
