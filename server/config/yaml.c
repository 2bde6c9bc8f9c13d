#include "config/yaml.h"

#include "base/limits.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

struct reader {
    yaml_parser_t parser;
    json_t *lines;
    struct buf pointer;
    unsigned depth;
    struct err *err;
};

static int fail(struct reader *r, size_t line, const char *what)
{
    return err_set(r->err, ERR_CONFIG, "line %zu: %s", line + 1, what);
}

static int next(struct reader *r, yaml_event_t *event)
{
    if (yaml_parser_parse(&r->parser, event))
        return 0;
    if (r->parser.error == YAML_MEMORY_ERROR)
        return err_no_memory(r->err);
    size_t line = r->parser.problem_mark.line ? r->parser.problem_mark.line : r->parser.context_mark.line;
    return fail(r, line, r->parser.problem ? r->parser.problem : "not YAML");
}

json_t *yaml_scalar(const char *text, size_t len)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    static const char *const trues[] = {"true", "True", "TRUE"};
    static const char *const falses[] = {"false", "False", "FALSE"};
    char *end;

    for (size_t i = 0; i < ARRAY_LEN(nulls); i++)
        if (strcmp(text, nulls[i]) == 0)
            return json_null();
    for (size_t i = 0; i < ARRAY_LEN(trues); i++) {
        if (strcmp(text, trues[i]) == 0)
            return json_true();
        if (strcmp(text, falses[i]) == 0)
            return json_false();
    }
    if (text[strspn(text, "+-0123456789")] == '\0') {
        errno = 0;
        long long n = strtoll(text, &end, 10);
        if (errno == 0 && *end == '\0')
            return json_integer(n);
    }
    if (text[strspn(text, "+-.eE0123456789")] == '\0' && strpbrk(text, "0123456789")) {
        errno = 0;
        double d = strtod(text, &end);
        if (errno == 0 && *end == '\0')
            return json_real(d);
    }
    return json_stringn(text, len);
}

static int node(struct reader *r, yaml_event_t *event, json_t **ret);

/* Reads the value that `event` starts, at one more step of the pointer, and frees the event. */
static int member(struct reader *r, const char *token, yaml_event_t *event, json_t **ret)
{
    size_t len = r->pointer.len;
    int rc = json_pointer_add(&r->pointer, token, r->err);

    if (rc == 0)
        rc = node(r, event, ret);
    yaml_event_delete(event);
    r->pointer.len = len;
    if (r->pointer.data)
        r->pointer.data[len] = '\0';
    return rc;
}

static int sequence(struct reader *r, json_t *list)
{
    for (;;) {
        yaml_event_t event;
        json_t *item = NULL;
        char token[24];
        if (next(r, &event) < 0)
            return -1;
        if (event.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&event);
            return 0;
        }
        snprintf(token, sizeof token, "%zu", json_array_size(list));
        if (member(r, token, &event, &item) < 0)
            return -1;
        if (json_array_append_new(list, item) < 0)
            return err_no_memory(r->err);
    }
}

static int mapping(struct reader *r, json_t *object)
{
    for (;;) {
        yaml_event_t key, event;
        json_t *value = NULL;
        int rc = 0;
        if (next(r, &key) < 0)
            return -1;
        if (key.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&key);
            return 0;
        }
        const char *name = key.type == YAML_SCALAR_EVENT ? (const char *)key.data.scalar.value : NULL;
        if (!name || strlen(name) != key.data.scalar.length || key.data.scalar.anchor || key.data.scalar.tag)
            rc = fail(r, key.start_mark.line, "a key must be a plain word");
        else if (json_object_get(object, name))
            rc = fail(r, key.start_mark.line, "this key stands here already");
        if (rc == 0 && (rc = next(r, &event)) == 0)
            rc = member(r, name, &event, &value);
        if (rc == 0 && json_object_set_new(object, name, value) < 0)
            rc = err_no_memory(r->err);
        yaml_event_delete(&key);
        if (rc < 0)
            return -1;
    }
}

static int scalar(struct reader *r, const yaml_event_t *event, json_t **ret)
{
    const char *text = (const char *)event->data.scalar.value;
    size_t len = event->data.scalar.length;

    if (event->data.scalar.anchor || (event->data.scalar.tag && !event->data.scalar.plain_implicit))
        return fail(r, event->start_mark.line, "anchors and tags are not allowed");
    if (strlen(text) != len || !utf8_valid(text, len))
        return fail(r, event->start_mark.line, "the text is not UTF-8 without NUL");
    bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    *ret = plain ? yaml_scalar(text, len) : json_stringn(text, len);
    return *ret ? 0 : err_no_memory(r->err);
}

static int node(struct reader *r, yaml_event_t *event, json_t **ret)
{
    json_t *value = NULL;
    int rc = 0;

    if (json_object_set_new(r->lines, r->pointer.data ? r->pointer.data : "",
                            json_integer((json_int_t)event->start_mark.line + 1)) < 0)
        return err_no_memory(r->err);
    if (++r->depth > LIMIT_JSON_DEPTH)
        return fail(r, event->start_mark.line, "nested too deep");
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        rc = scalar(r, event, &value);
        break;
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT: {
        bool is_map = event->type == YAML_MAPPING_START_EVENT;
        if (is_map ? event->data.mapping_start.anchor || event->data.mapping_start.tag
                   : event->data.sequence_start.anchor || event->data.sequence_start.tag) {
            rc = fail(r, event->start_mark.line, "anchors and tags are not allowed");
            break;
        }
        value = is_map ? json_object() : json_array();
        rc = !value ? err_no_memory(r->err) : is_map ? mapping(r, value) : sequence(r, value);
        break;
    }
    default:
        rc = fail(r, event->start_mark.line, "aliases are not allowed");
    }
    r->depth--;
    if (rc < 0) {
        json_decref(value);
        return -1;
    }
    *ret = value;
    return 0;
}

/* Stream start, one document, stream end. */
static int document(struct reader *r, json_t **ret)
{
    yaml_event_t event;
    bool done = false;

    while (!done) {
        if (next(r, &event) < 0)
            return -1;
        switch (event.type) {
        case YAML_STREAM_START_EVENT:
        case YAML_DOCUMENT_END_EVENT:
            break;
        case YAML_DOCUMENT_START_EVENT:
            if (*ret) {
                int rc = fail(r, event.start_mark.line, "a second document starts here");
                yaml_event_delete(&event);
                return rc;
            }
            break;
        case YAML_STREAM_END_EVENT:
            done = true;
            break;
        default:
            if (node(r, &event, ret) < 0) {
                yaml_event_delete(&event);
                return -1;
            }
        }
        yaml_event_delete(&event);
    }
    if (!*ret && !(*ret = json_object()))
        return err_no_memory(r->err);
    return 0;
}

int yaml_parse(const char *text, size_t len, json_t **ret, json_t **lines, struct err *err)
{
    struct reader r = {.lines = json_object(), .pointer = BUF_INIT(4096), .err = err};
    json_t *value = NULL;

    if (!r.lines || !yaml_parser_initialize(&r.parser)) {
        json_decref(r.lines);
        return err_no_memory(err);
    }
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, len);
    int rc = document(&r, &value);
    yaml_parser_delete(&r.parser);
    buf_free(&r.pointer);
    if (rc < 0) {
        json_decref(value);
        json_decref(r.lines);
        return -1;
    }
    *ret = value;
    *lines = r.lines;
    return 0;
}
