#include "base/json.h"

#include "base/limits.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* jansson's own bound (JSON_PARSER_MAX_DEPTH, 2048) is far above ours, so depth is counted before parsing:
 * strings are skipped, brackets counted. Malformed text is left to the parser. */
static int check_depth(const char *text, size_t len, struct err *err)
{
    unsigned depth = 0, line = 1;
    size_t line_start = 0;
    bool in_string = false;

    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (c == '\n') {
            line++;
            line_start = i + 1;
        }
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > LIMIT_JSON_DEPTH)
                return err_set(err, ERR_INVALID_JSON, "line %u, column %zu: nested deeper than %d", line,
                               i - line_start + 1, LIMIT_JSON_DEPTH);
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return 0;
}

/* jansson had no memory on this thread. Its parser calls that a fault of the text in many places, its writer
 * leaves out the key of a member, its deep copy the member itself. */
static __thread bool starved;

/* What the first failed allocation of a parse gets instead. jansson's lexer does not look whether its buffer
 * could grow, and then reads and writes behind its end: so this one growth succeeds, and the next byte that
 * it asks for is the end. */
static __thread void *spare;
static __thread size_t spare_size;

static void *noting_malloc(size_t size)
{
    void *p = malloc(size);

    if (p)
        return p;
    starved = true;
    return size <= spare_size ? STEAL(spare) : NULL;
}

/* Before any thread and any value. */
__attribute__((constructor)) static void note_failures(void)
{
    json_set_alloc_funcs(noting_malloc, free);
}

/* jansson ends its sentence with what it read there, and that may be a message or a credential, which no log
 * may hold. Line and column say enough. */
static size_t without_quote(const char *sentence)
{
    const char *near = strstr(sentence, " near '");

    return near ? (size_t)(near - sentence) : strlen(sentence);
}

struct input {
    const char *text;
    size_t left;
};

/* One byte at a time, so that nothing is read after an allocation has failed. */
static size_t next_byte(void *buffer, size_t size, void *arg)
{
    struct input *in = arg;

    if (in->left == 0 || size == 0 || starved)
        return 0;
    *(char *)buffer = *in->text++;
    in->left--;
    return 1;
}

/* No token is longer than the text, and the lexer's buffer doubles as it grows. */
static json_t *load(const char *text, size_t len, json_error_t *why)
{
    struct input in = {text, len};

    starved = false;
    spare_size = 2 * len + 64;
    spare = malloc(spare_size);
    if (!spare) {
        starved = true;
        return NULL;
    }
    json_t *value = json_load_callback(next_byte, &in, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, why);
    free(STEAL(spare));
    if (value && starved) {
        json_decref(value);
        value = NULL;
    }
    return value;
}

int json_parse(const char *text, size_t len, json_t **ret, struct err *err)
{
    json_error_t why;

    if (check_depth(text, len, err) < 0)
        return -1;
    json_t *value = load(text, len, &why);
    if (!value) {
        if (starved)
            return err_no_memory(err);
        why.text[without_quote(why.text)] = '\0';
        return err_set(err, ERR_INVALID_JSON, "line %d, column %d: %s", why.line < 0 ? 1 : why.line,
                       why.column < 0 ? 0 : why.column, why.text);
    }
    *ret = value;
    return 0;
}

int json_text(const json_t *value, char **ret, struct err *err)
{
    starved = false;
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);

    if (!text || starved) {
        free(text);
        return err_no_memory(err);
    }
    *ret = text;
    return 0;
}

json_t *json_clone(const json_t *value)
{
    starved = false;
    json_t *copy = json_deep_copy(value);

    if (copy && starved) {
        json_decref(copy);
        return NULL;
    }
    return copy;
}

const char *json_str(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

int json_pointer_add(struct buf *pointer, const char *token, struct err *err)
{
    if (buf_adds(pointer, "/", err) < 0)
        return -1;
    for (; *token; token++) {
        const char *piece = *token == '~' ? "~0" : *token == '/' ? "~1" : NULL;
        if ((piece ? buf_adds(pointer, piece, err) : buf_add(pointer, token, 1, err)) < 0)
            return -1;
    }
    return 0;
}

void json_fault(struct json_faults *faults, const char *pointer, const char *fmt, ...)
{
    char detail[512];
    va_list ap;

    faults->total++;
    if (!faults->list)
        faults->list = json_array();
    if (json_array_size(faults->list) >= JSON_FAULTS_MAX)
        return;
    va_start(ap, fmt);
    vsnprintf(detail, sizeof detail, fmt, ap);
    va_end(ap);
    /* Paths and cut texts need not be UTF-8, and a fault must not be lost for that. */
    char *safe_pointer = utf8_sanitize(pointer, strlen(pointer));
    char *safe_detail = utf8_sanitize(detail, strlen(detail));
    json_t *fault = safe_pointer && safe_detail
                        ? json_pack("{s:s, s:s}", "pointer", safe_pointer, "detail", safe_detail)
                        : NULL;
    if (!fault || json_array_append_new(faults->list, fault) < 0)
        faults->no_memory = true;
    free(safe_pointer);
    free(safe_detail);
}

void json_faults_no_memory(struct json_faults *faults)
{
    faults->total++;
    faults->no_memory = true;
}

int json_faults_error(struct json_faults *faults, struct err *err)
{
    if (!faults->no_memory)
        return err_set(err, ERR_INVALID, "the body breaks %zu rules, see errors", faults->total);
    json_faults_free(faults);
    return err_no_memory(err);
}

void json_faults_free(struct json_faults *faults)
{
    json_decref(faults->list);
    *faults = (struct json_faults){0};
}
