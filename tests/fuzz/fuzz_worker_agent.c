/* The whole worker in front of a broker that answers anything: it writes exactly one line, which the service
 * takes, and every request it makes keeps the rules of mission.md section 5, whatever the model wanted. */
#include "support/fake_broker.h"
#include "support/fuzz.h"

#include "base/fs.h"
#include "base/limits.h"
#include "deploy/worker/worker.h"
#include "schemas/model_input.h"
#include "schemas/protocol.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define SEPARATOR 0xFF /* between answers; one that begins with '!' gives its own status: "!429{…}" */
#define LAST      "{\"choices\":[{\"message\":{\"content\":\"done\"}}]}"

static const char *socket_path, *workspace;
static char turn_line[2][4096];
static struct fuzz_input answers; /* of this run; the broker's thread takes from it */
static unsigned calls;

static void check_model_body(const char *body, size_t len)
{
    CLEANUP(json_free) json_t *value = fuzz_json(body, len);
    CLEANUP(json_free) json_t *messages = NULL;
    CLEANUP(json_free) json_t *tools = NULL;
    struct json_faults faults = {0};

    PROPERTY(len < LIMIT_BROKER_BODY, "%zu bytes", len);
    PROPERTY(value && model_input(value, "", &messages, &tools, &faults) == 0, "the sanitizer refuses %s: %s",
             json_str(json_array_get(faults.list, 0), "pointer"), body);
    PROPERTY(json_equal(messages, json_object_get(value, "messages")), "the sanitizer changes it: %s", body);
    fuzz_check_call_ids(messages, true);
    PROPERTY(++calls <= LIMIT_WORKER_MODEL_CALLS, "%u model calls", calls);
}

static void check_request(const char *route, const char *body, size_t len)
{
    CLEANUP(json_free) json_t *value = NULL;

    if (strcmp(route, "/model") == 0) {
        check_model_body(body, len);
        return;
    }
    value = fuzz_json(body, len);
    PROPERTY(json_is_object(value), "no object for %s: %s", route, body);
    if (strcmp(route, "/tools/look") == 0)
        return;
    PROPERTY(strcmp(route, "/mcp/files") == 0, "a route that was not granted: %s", route);
    const char *method = json_str(value, "method"),
               *name = json_str(json_object_get(value, "params"), "name");
    PROPERTY(method && strcmp(method, "tools/call") == 0 && name && strcmp(name, "read") == 0, "%s", body);
}

static void answer_next(const char *route, const char *body, size_t len, struct buf *answer)
{
    struct fuzz_input part = {(const uint8_t *)LAST, strlen(LAST)};
    int status = 200;
    struct err err;

    check_request(route, body, len);
    if (answers.size > 0) {
        const uint8_t *end = memchr(answers.data, SEPARATOR, answers.size);
        part = (struct fuzz_input){answers.data, end ? (size_t)(end - answers.data) : answers.size};
        answers.data += part.size + (end != NULL);
        answers.size -= part.size + (end != NULL);
    }
    if (part.size >= 4 && part.data[0] == '!') {
        status = 200 + (part.data[1] * 100 + part.data[2] * 10 + part.data[3]) % 400;
        part = (struct fuzz_input){part.data + 4, part.size - 4};
    }
    PROPERTY(buf_addf(answer, &err, "HTTP/1.1 %d Status\r\nContent-Length: %zu\r\n\r\n", status, part.size) ==
                     0 &&
                 buf_add(answer, part.data, part.size, &err) == 0,
             "%s", err.text);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char rest[] =
        "\"version\":1,\"id\":\"turn_1\",\"speaker\":{\"id\":\"u1\",\"name\":\"Ann\"},\"model\":\"m\","
        "\"prompt\":\"p\",\"time_zone\":\"UTC\",\"tools\":[{\"name\":\"look\",\"description\":\"d\","
        "\"parameters\":{\"type\":\"object\"}}],\"mcp\":[{\"server\":\"files\",\"tools\":[{\"name\":"
        "\"read\",\"description\":\"d\",\"parameters\":{}}]}],\"caller_tools\":[{\"type\":"
        "\"function\",\"function\":{\"name\":\"mine\",\"description\":\"d\",\"parameters\":{}}}],"
        "\"reset\":false,\"deadline_ms\":10000";

    (void)argc;
    (void)argv;
    socket_path = fake_broker_start(answer_next);
    CLEANUP(free_str) char *folder = strndup(socket_path, (size_t)(strrchr(socket_path, '/') - socket_path));
    workspace = strdup(folder);
    snprintf(turn_line[0], sizeof turn_line[0], "{%s,\"workspace\":\"%s\",\"text\":\"hello\"}\n", rest,
             workspace);
    snprintf(turn_line[1], sizeof turn_line[1],
             "{%s,\"workspace\":\"%s\",\"messages\":[{\"role\":\"user\",\"content\":\"hello\"},{\"role\":"
             "\"assistant\","
             "\"content\":\"\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{\"name\":"
             "\"mine\","
             "\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"content\":\"r\",\"tool_call_id\":\"c\"}]}\n",
             rest, workspace);
    return 0;
}

static void check_line(int fd, int code)
{
    CLEANUP(buf_free) struct buf line = BUF_INIT(2 * LIMIT_STDOUT);
    struct worker_reply reply = {0};
    struct err err = {0};
    ssize_t n;

    do {
        PROPERTY(buf_reserve(&line, 65536, &err) == 0, "%s", err.text);
        n = pread(fd, line.data + line.len, 65536, (off_t)line.len);
        line.len += n > 0 ? (size_t)n : 0;
    } while (n > 0);
    PROPERTY(line.len > 0 && line.data[line.len - 1] == '\n' && !memchr(line.data, '\n', line.len - 1),
             "not one line");
    PROPERTY(worker_reply_parse(line.data, line.len - 1, &reply, &err) == 0,
             "the service refuses it: %s: %.*s", err.text, (int)line.len, line.data);
    PROPERTY(reply.ok == (code == 0), "exit code %d", code);
    json_decref(reply.reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int dir = -1;
    struct fuzz_input in = {data, size};
    const char *line = turn_line[fuzz_byte(&in) & 1];
    CLEANUP(close_fd) int in_fd = memfd_create("turn", MFD_CLOEXEC);
    CLEANUP(close_fd) int out_fd = memfd_create("reply", MFD_CLOEXEC);
    struct err err = {0};

    if (dir < 0)
        dir = open(workspace, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    PROPERTY(in_fd >= 0 && out_fd >= 0 && dir >= 0, "no files");
    PROPERTY(pwrite(in_fd, line, strlen(line), 0) == (ssize_t)strlen(line), "the turn");
    answers = in;
    calls = 0;
    const struct worker worker = {
        .in_fd = in_fd, .out_fd = out_fd, .stop_fd = -1, .socket_path = socket_path};
    int code = worker_run(&worker);
    fake_broker_settle();
    check_line(out_fd, code);
    PROPERTY(fs_remove_tree(dir, ".cloister", &err) == 0, "%s", err.text);
    return 0;
}
