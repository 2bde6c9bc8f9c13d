#include "fuzz.h"

#include "base/fs.h"
#include "base/utf8.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MISSING_MAX 64 /* longest name that a rule asks for */

/* libFuzzer can be told to silence what the code under test logs (-close_fd_mask=2). */
static int told = STDERR_FILENO;

__attribute__((constructor)) static void keep_stderr(void)
{
    int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);

    if (fd >= 0)
        told = fd;
}

_Noreturn void fuzz_broken(const char *file, int line, const char *fmt, ...)
{
    va_list ap;

    dprintf(told, "\nBROKEN PROPERTY at %s:%d: ", file, line);
    va_start(ap, fmt);
    vdprintf(told, fmt, ap);
    va_end(ap);
    dprintf(told, "\n");
    abort();
}

char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    PROPERTY(text, "out of memory");
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

json_t *fuzz_json(const char *text, size_t size)
{
    json_t *value = NULL;
    struct err err = {0};

    if (json_parse(text, size, &value, &err) == 0)
        return value;
    fuzz_check_err(&err);
    PROPERTY(err.code == ERR_INVALID_JSON, "json_parse: %s: %s", err_name(err.code), err.text);
    unsigned line = 0, column = 0;
    PROPERTY(sscanf(err.text, "line %u, column %u: ", &line, &column) == 2 && line >= 1,
             "json_parse does not say where: %s", err.text);
    return NULL;
}

uint8_t fuzz_byte(struct fuzz_input *in)
{
    if (in->size == 0)
        return 0;
    in->size--;
    return *in->data++;
}

/* One token of a JSON pointer, unescaped in place; the rest after it. (RFC 6901) */
static char *next_token(char *at, char **rest)
{
    char *out = at;

    *rest = at + strcspn(at, "/");
    for (char *p = at; p < *rest; p++) {
        if (*p != '~') {
            *out++ = *p;
            continue;
        }
        p++;
        PROPERTY(*p == '0' || *p == '1', "a pointer with ~%c", *p);
        *out++ = *p == '0' ? '~' : '/';
    }
    bool more = **rest == '/';
    if (more)
        ++*rest;
    *out = '\0';
    return more ? *rest : NULL;
}

static void check_pointer(const json_t *value, const char *pointer)
{
    CLEANUP(free_str) char *copy = strdup(pointer);
    char *token = copy + 1, *rest, *end;

    PROPERTY(copy, "out of memory");
    if (!*pointer)
        return;
    PROPERTY(*pointer == '/', "the pointer \"%s\" does not begin with a slash", pointer);
    while (token) {
        char *next = next_token(token, &rest);
        if (json_is_object(value)) {
            value = json_object_get(value, token);
            PROPERTY(value || (!next && strlen(token) <= MISSING_MAX),
                     "the pointer \"%s\" leads through a member that is not there", pointer);
        } else {
            unsigned long index = strtoul(token, &end, 10);
            PROPERTY(json_is_array(value) && *token && !*end && index < json_array_size(value),
                     "the pointer \"%s\" leads nowhere", pointer);
            value = json_array_get(value, index);
        }
        token = next;
    }
}

void fuzz_check_faults(const json_t *value, const struct json_faults *faults)
{
    size_t kept = json_array_size(faults->list), i;
    json_t *fault;

    PROPERTY(kept <= JSON_FAULTS_MAX && faults->total >= kept && (faults->total == 0 || kept > 0),
             "%zu faults kept of %zu", kept, faults->total);
    json_array_foreach(faults->list, i, fault) {
        const char *pointer = json_str(fault, "pointer"), *detail = json_str(fault, "detail");
        PROPERTY(pointer && detail && *detail, "a fault without pointer or sentence");
        check_pointer(value, pointer);
    }
}

void fuzz_check_err(const struct err *err)
{
    PROPERTY(err->code != ERR_NONE && err->code <= ERR_USAGE, "an error of code %d", (int)err->code);
    PROPERTY(err->code != ERR_INTERNAL && err->code != ERR_NO_MEMORY, "%s", err->text);
    PROPERTY(err->text[0], "an error without a sentence");
    PROPERTY(utf8_valid(err->text, strlen(err->text)), "an error's sentence is not UTF-8: %s", err->text);
}

void fuzz_check_call_ids(const json_t *messages, bool answered)
{
    CLEANUP(json_free) json_t *seen = json_object();
    json_t *message, *call;
    size_t i, n;

    json_array_foreach(messages, i, message) {
        const char *answers = json_str(message, "tool_call_id");
        PROPERTY(!answers || !answered || json_object_get(seen, answers),
                 "an answer to %s, which was not called", answers);
        json_array_foreach(json_object_get(message, "tool_calls"), n, call) {
            const char *id = json_str(call, "id");
            PROPERTY(id && !json_object_get(seen, id), "the id %s stands twice", id);
            json_object_set_new(seen, id, json_true());
        }
    }
}

static char folder[64];

static void remove_folder(void)
{
    struct err err;

    if (fs_remove_tree(AT_FDCWD, folder, &err) < 0)
        fprintf(stderr, "%s\n", err.text);
}

const char *fuzz_folder(void)
{
    bool memory = access("/dev/shm", W_OK) == 0;

    snprintf(folder, sizeof folder, "%s/cloister-fuzz-XXXXXX", memory ? "/dev/shm" : "/tmp");
    PROPERTY(mkdtemp(folder), "no folder for files: %s", folder);
    atexit(remove_folder);
    return folder;
}
