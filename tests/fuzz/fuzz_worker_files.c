/* The worker's own files, in which whoever ran in the workspace before may have put anything: what is not
 * usable starts afresh, what is kept to the bounds stays, and every change can be read again. */
#include "support/fuzz.h"

#include "base/limits.h"
#include "base/utf8.h"
#include "deploy/worker/history.h"
#include "deploy/worker/memory.h"
#include "deploy/worker/text.h"

#include <fcntl.h>
#include <string.h>

#define SEPARATOR 0xFF /* between memory, history and the text of the turn */

static int dirfd;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    dirfd = open(fuzz_folder(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    PROPERTY(dirfd >= 0, "no folder");
    return 0;
}

static void put(const char *name, const uint8_t *data, size_t size)
{
    CLEANUP(close_fd) int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    PROPERTY(fd >= 0 && write(fd, data, size) == (ssize_t)size, "the file");
}

static void check_preview(const struct memory *m, enum memory_scope scope)
{
    CLEANUP(buf_free) struct buf out = BUF_INIT(1 << 20);
    struct err err = {0};

    PROPERTY(memory_preview(m, scope, &out, &err) == 0, "%s", err.text);
    PROPERTY(out.len <= LIMIT_WORKER_PREVIEW && utf8_valid(out.data, out.len), "a preview of %zu bytes",
             out.len);
}

static void check_reload(const struct memory *m)
{
    CLEANUP(memory_free) struct memory again = {0};
    struct err err = {0};

    PROPERTY(memory_load(dirfd, m->speaker, &again, &err) == 0, "not read again: %s", err.text);
    PROPERTY(json_equal(m->root, again.root), "another memory");
}

static void change_memory(struct memory *m, enum memory_scope scope, const char *key, const char *value)
{
    CLEANUP(json_free) json_t *before = json_deep_copy(m->root);
    struct err err = {0};

    if (memory_set(m, scope, key, value, &err) < 0) {
        PROPERTY(err.code == ERR_INVALID && json_equal(before, m->root), "%s: %s", err_name(err.code),
                 err.text);
        return;
    }
    const char *got = memory_get(m, scope, key);
    PROPERTY(got && strcmp(got, value) == 0, "forgotten at once");
    check_reload(m);
    PROPERTY(memory_remove(m, scope, key, &err) == 0 && !memory_get(m, scope, key), "not removed: %s",
             err.text);
    check_reload(m);
}

static void try_memory(const char *key, const char *value)
{
    CLEANUP(memory_free) struct memory m = {0};
    struct err err = {0};

    int rc = memory_load(dirfd, "u1", &m, &err);
    PROPERTY(rc == 0 || rc == 1, "%s", err.text);
    if (rc == 1) {
        fuzz_check_err(&err);
        PROPERTY(json_object_size(json_object_get(m.root, "channel")) == 0, "not afresh");
    }
    PROPERTY(json_object_size(memory_entries(&m, MEMORY_CHANNEL)) <= LIMIT_MEMORY_ENTRIES &&
                 json_object_size(memory_entries(&m, MEMORY_SPEAKER)) <= LIMIT_MEMORY_ENTRIES,
             "more entries than may be");
    check_preview(&m, MEMORY_CHANNEL);
    check_preview(&m, MEMORY_SPEAKER);
    change_memory(&m, MEMORY_CHANNEL, key, value);
    change_memory(&m, MEMORY_SPEAKER, key, value);
    check_preview(&m, MEMORY_SPEAKER);
}

static void check_history(const json_t *history)
{
    json_t *exchange;
    size_t i;

    PROPERTY(json_array_size(history) <= LIMIT_WORKER_EXCHANGES, "%zu exchanges", json_array_size(history));
    json_array_foreach(history, i, exchange) {
        const char *user = json_str(exchange, "user"), *assistant = json_str(exchange, "assistant");
        PROPERTY(user && assistant && json_str(json_object_get(exchange, "speaker"), "name"), "an exchange");
        PROPERTY(text_encoded(user, strlen(user)) + text_encoded(assistant, strlen(assistant)) <=
                     LIMIT_WORKER_EXCHANGE,
                 "a long exchange");
    }
}

static void try_history(const char *user, const char *assistant)
{
    CLEANUP(json_free) json_t *history = NULL;
    CLEANUP(json_free) json_t *again = NULL;
    struct err err = {0};

    int rc = history_load(dirfd, &history, &err);
    PROPERTY(rc == 0 || rc == 1, "%s", err.text);
    if (rc == 1) {
        fuzz_check_err(&err);
        PROPERTY(json_array_size(history) == 0, "not afresh");
    }
    check_history(history);
    PROPERTY(history_add(history, "u1", "Ann", user, assistant, &err) == 0, "%s", err.text);
    check_history(history);
    PROPERTY(history_save(dirfd, history, &err) == 0, "%s", err.text);
    PROPERTY(history_load(dirfd, &again, &err) == 0, "not read again: %s", err.text);
    PROPERTY(json_equal(history, again), "another history");
    PROPERTY(history_clear(dirfd, &err) == 0, "%s", err.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input part[3] = {{0}};
    const uint8_t *at = data, *end = data + size;

    for (size_t i = 0; i < 3 && at; i++) {
        const uint8_t *separator = i < 2 && at < end ? memchr(at, SEPARATOR, (size_t)(end - at)) : NULL;
        part[i] = (struct fuzz_input){at, (size_t)((separator ? separator : end) - at)};
        at = separator ? separator + 1 : NULL;
    }
    CLEANUP(free_str) char *words = fuzz_text(part[2].data, part[2].size);
    CLEANUP(free_str) char *text = utf8_sanitize(words, part[2].size);
    size_t half = utf8_cut_bytes(text, strlen(text), strlen(text) / 2);
    CLEANUP(free_str) char *first = strndup(text, half);

    put("memory.json", part[0].data, part[0].size);
    put("history.json", part[1].data, part[1].size);
    try_memory(first, text + half);
    try_history(first, text + half);
    return 0;
}
