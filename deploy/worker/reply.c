#include "reply.h"

#include "text.h"

#include "base/clock.h"
#include "base/limits.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>

int reply_success(const char *text, json_t *tool_calls, char **ret, struct err *err)
{
    CLEANUP(free_str) char *cut = NULL;
    CLEANUP(free_str) char *line = NULL;
    CLEANUP(json_free) json_t *reply = NULL;

    if (text_cut_chars(text, LIMIT_REPLY_TEXT_CHARS, &cut, err) < 0)
        return -1;
    reply = json_pack("{s:b, s:s, s:O*}", "ok", 1, "text", cut, "tool_calls", tool_calls);
    if (!reply)
        return err_no_memory(err);
    if (json_text(reply, &line, err) < 0)
        return -1;
    size_t len = strlen(line);
    if (len >= LIMIT_STDOUT)
        return err_set(err, ERR_TOO_LARGE, "the reply is larger than %d KiB", LIMIT_STDOUT / 1024);
    char *grown = realloc(line, len + 2);
    if (!grown)
        return err_no_memory(err);
    line = NULL;
    memcpy(grown + len, "\n", 2);
    *ret = grown;
    return 0;
}

#define FAILURE(sentence) "{\"ok\":false,\"text\":\"" sentence "\"}\n"

const char *reply_failure(enum err_code code)
{
    switch (code) {
    case ERR_TIMEOUT:
        return FAILURE("The turn reached its deadline.");
    case ERR_CANCELED:
        return FAILURE("The turn was stopped.");
    case ERR_BUDGET:
        return FAILURE("The turn used up its model calls.");
    case ERR_INVALID_JSON:
    case ERR_INVALID:
        return FAILURE("The worker did not accept the turn.");
    case ERR_TOO_LARGE:
        return FAILURE("The turn is too large.");
    case ERR_UPSTREAM:
        return FAILURE("The model did not give a usable answer.");
    default:
        return FAILURE("The worker failed.");
    }
}

/* What poll(2) calls writable takes PIPE_BUF bytes of a pipe without blocking. */
int reply_write(int fd, const char *line, int timeout_ms, struct err *err)
{
    int64_t deadline = clock_mono_ms() + timeout_ms;
    size_t left = strlen(line);

    while (left > 0) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        int wait = clock_left_ms(deadline);
        if (wait == 0)
            return err_set(err, ERR_TIMEOUT, "nobody reads the reply");
        if (poll(&p, 1, wait) <= 0)
            continue;
        ssize_t n = write(fd, line, left < PIPE_BUF ? left : PIPE_BUF);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return err_errno(err, errno, "write the reply");
        if (n > 0) {
            line += n;
            left -= (size_t)n;
        }
    }
    return 0;
}
