/* The worker's HTTP client against any answer: what it takes is the body that the head announced, to the
 * byte. */
#include "support/fake_broker.h"
#include "support/fuzz.h"

#include "base/clock.h"
#include "base/limits.h"
#include "deploy/worker/broker_client.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static const char *path;
static const uint8_t *sent;
static size_t sent_len;

static void answer_input(const char *route, const char *body, size_t len, struct buf *answer)
{
    struct err err;

    PROPERTY(strcmp(route, "/model") == 0 && len == 2 && strcmp(body, "{}") == 0, "the request");
    PROPERTY(buf_add(answer, sent, sent_len, &err) == 0, "%s", err.text);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    path = fake_broker_start(answer_input);
    return 0;
}

/* How many fields of the head have this name. *value: of the last. */
static unsigned fields(const char *head, size_t len, const char *name, const char **value)
{
    unsigned n = 0;

    for (const char *p = head; (p = memmem(p, (size_t)(head + len - p), "\r\n", 2)); p += 2) {
        if (strncasecmp(p + 2, name, strlen(name)) == 0 && p[2 + strlen(name)] == ':') {
            n++;
            *value = p + 3 + strlen(name);
        }
    }
    return n;
}

static void check(const char *text, size_t len, const struct broker_answer *answer)
{
    const char *end = memmem(text, len, "\r\n\r\n", 4), *length = NULL, *coding = NULL;

    PROPERTY(end && strncmp(text, "HTTP/1.1 ", 9) == 0, "no head");
    size_t head = (size_t)(end - text);
    PROPERTY(answer->status == atoi(text + 9) && answer->status >= 200 && answer->status <= 599, "status %d",
             answer->status);
    PROPERTY(fields(text, head, "content-length", &length) == 1, "not one length");
    PROPERTY(fields(text, head, "transfer-encoding", &coding) == 0, "a transfer coding");
    size_t want = strtoul(length, NULL, 10);
    PROPERTY(answer->body.len == want && want <= LIMIT_UPSTREAM_ANSWER && len - head - 4 >= want,
             "%zu bytes and not %zu", answer->body.len, want);
    PROPERTY(want == 0 || memcmp(answer->body.data, end + 4, want) == 0, "another body");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct broker_link link = {
        .socket_path = path, .stop_fd = -1, .deadline_mono_ms = clock_mono_ms() + 5000};
    struct broker_answer answer = {0};
    struct err err = {0};
    CLEANUP(free_str) char *text = fuzz_text(data, size);

    sent = data;
    sent_len = size;
    int rc = broker_post(&link, "/model", "{}", 2, &answer, &err);
    fake_broker_settle();
    if (rc == 0) {
        check(text, size, &answer);
    } else {
        fuzz_check_err(&err);
        PROPERTY(!answer.body.data, "a body beside an error");
        PROPERTY(err.code == ERR_UPSTREAM || err.code == ERR_TOO_LARGE, "%s: %s", err_name(err.code),
                 err.text);
    }
    buf_free(&answer.body);
    return 0;
}
