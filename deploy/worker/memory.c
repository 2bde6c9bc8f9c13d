#include "memory.h"

#include "state.h"
#include "text.h"

#include "base/limits.h"
#include "base/utf8.h"

#include <string.h>

#define FILE_NAME "memory.json"
/* Encoded size of one value in a preview, so that one long value does not hide the others. */
#define PREVIEW_VALUE 512

static bool key_valid(const char *key)
{
    size_t len = strlen(key), chars = utf8_chars(key, len);

    return chars >= 1 && chars <= LIMIT_MEMORY_KEY_CHARS && !utf8_has_control(key, len);
}

static bool value_valid(const json_t *value)
{
    return json_is_string(value) &&
           utf8_chars(json_string_value(value), json_string_length(value)) <= LIMIT_MEMORY_VALUE_CHARS;
}

static bool entries_valid(const json_t *entries)
{
    if (!json_is_object(entries) || json_object_size(entries) > LIMIT_MEMORY_ENTRIES)
        return false;
    for (void *it = json_object_iter((json_t *)(uintptr_t)entries); it;
         it = json_object_iter_next((json_t *)(uintptr_t)entries, it))
        if (!key_valid(json_object_iter_key(it)) || !value_valid(json_object_iter_value(it)))
            return false;
    return true;
}

static bool root_valid(const json_t *root)
{
    const json_t *speakers = json_object_get(root, "speakers");

    if (json_object_size(root) != 3 || json_integer_value(json_object_get(root, "version")) != 1)
        return false;
    if (!entries_valid(json_object_get(root, "channel")) || !json_is_object(speakers))
        return false;
    for (void *it = json_object_iter((json_t *)(uintptr_t)speakers); it;
         it = json_object_iter_next((json_t *)(uintptr_t)speakers, it))
        if (!entries_valid(json_object_iter_value(it)))
            return false;
    return true;
}

static int read_root(int dirfd, json_t **ret, struct err *err)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT(LIMIT_MEMORY_BYTES);
    CLEANUP(json_free) json_t *root = NULL;

    if (state_read(dirfd, FILE_NAME, &b, err) < 0)
        return -1;
    if (json_parse(b.data ? b.data : "", b.len, &root, err) < 0)
        return err_wrap(err, FILE_NAME);
    if (!root_valid(root))
        return err_set(err, ERR_INVALID, FILE_NAME " does not have the form of a memory file");
    *ret = json_steal(&root);
    return 0;
}

int memory_load(int dirfd, const char *speaker, struct memory *ret, struct err *err)
{
    json_t *root = NULL;
    int rc = 0;

    if (read_root(dirfd, &root, err) < 0) {
        if (err->code == ERR_NO_MEMORY)
            return -1;
        rc = err->code == ERR_NOT_FOUND ? 0 : 1;
        root = json_pack("{s:i, s:{}, s:{}}", "version", 1, "channel", "speakers");
    }
    if (!root)
        return err_no_memory(err);
    *ret = (struct memory){.root = root, .dirfd = dirfd, .speaker = speaker};
    return rc;
}

void memory_free(struct memory *m)
{
    json_decref(m->root);
    *m = (struct memory){0};
}

const json_t *memory_entries(const struct memory *m, enum memory_scope scope)
{
    if (scope == MEMORY_CHANNEL)
        return json_object_get(m->root, "channel");
    return json_object_get(json_object_get(m->root, "speakers"), m->speaker);
}

/* A copy of the root whose scope exists, to be changed and only then put in the root's place. */
static int draft(const struct memory *m, enum memory_scope scope, json_t **ret, json_t **ret_entries,
                 struct err *err)
{
    CLEANUP(json_free) json_t *root = json_clone(m->root);
    json_t *speakers = json_object_get(root, "speakers");
    json_t *entries;

    if (!root)
        return err_no_memory(err);
    if (scope == MEMORY_SPEAKER && !json_object_get(speakers, m->speaker) &&
        json_object_set_new(speakers, m->speaker, json_object()) < 0)
        return err_no_memory(err);
    entries =
        scope == MEMORY_CHANNEL ? json_object_get(root, "channel") : json_object_get(speakers, m->speaker);
    *ret_entries = entries;
    *ret = json_steal(&root);
    return 0;
}

static int commit(struct memory *m, json_t *root, struct err *err)
{
    CLEANUP(free_str) char *text = NULL;

    if (json_text(root, &text, err) < 0)
        return -1;
    if (strlen(text) > LIMIT_MEMORY_BYTES)
        return err_set(err, ERR_INVALID, "the memory is full (%d KiB); remove something first",
                       LIMIT_MEMORY_BYTES / 1024);
    if (state_write(m->dirfd, FILE_NAME, text, strlen(text), err) < 0)
        return err_wrap(err, "store the memory");
    json_decref(m->root);
    m->root = json_incref(root);
    return 0;
}

int memory_set(struct memory *m, enum memory_scope scope, const char *key, const char *value, struct err *err)
{
    CLEANUP(json_free) json_t *root = NULL;
    json_t *entries;

    if (!key_valid(key))
        return err_set(err, ERR_INVALID, "a key has 1 to %d characters, none of them control characters",
                       LIMIT_MEMORY_KEY_CHARS);
    if (utf8_chars(value, strlen(value)) > LIMIT_MEMORY_VALUE_CHARS)
        return err_set(err, ERR_INVALID, "a value has at most %d characters", LIMIT_MEMORY_VALUE_CHARS);
    if (draft(m, scope, &root, &entries, err) < 0)
        return -1;
    if (!json_object_get(entries, key) && json_object_size(entries) >= LIMIT_MEMORY_ENTRIES)
        return err_set(err, ERR_INVALID, "this scope is full (%d entries); remove one first",
                       LIMIT_MEMORY_ENTRIES);
    if (json_object_set_new(entries, key, json_string(value)) < 0)
        return err_no_memory(err);
    return commit(m, root, err);
}

const char *memory_get(const struct memory *m, enum memory_scope scope, const char *key)
{
    return json_str(memory_entries(m, scope), key);
}

int memory_remove(struct memory *m, enum memory_scope scope, const char *key, struct err *err)
{
    CLEANUP(json_free) json_t *root = NULL;
    json_t *entries;

    if (!memory_get(m, scope, key))
        return 0;
    if (draft(m, scope, &root, &entries, err) < 0)
        return -1;
    json_object_del(entries, key);
    if (scope == MEMORY_SPEAKER && json_object_size(entries) == 0)
        json_object_del(json_object_get(root, "speakers"), m->speaker);
    return commit(m, root, err);
}

static int preview_entry(struct buf *out, const char *key, const char *value, bool first, size_t room,
                         struct err *err)
{
    CLEANUP(free_str) char *cut = NULL;
    CLEANUP(free_str) char *text = NULL;
    CLEANUP(json_free) json_t *entry = NULL;

    if (text_cut(value, PREVIEW_VALUE, &cut, err) < 0)
        return -1;
    entry = json_pack("{s:s}", key, cut);
    if (!entry)
        return err_no_memory(err);
    if (json_text(entry, &text, err) < 0)
        return -1;
    size_t len = strlen(text) - 2; /* without its braces */
    if (out->len + len + 1 > room)
        return 1;
    if (!first && buf_adds(out, ",", err) < 0)
        return -1;
    return buf_add(out, text + 1, len, err);
}

int memory_preview(const struct memory *m, enum memory_scope scope, struct buf *out, struct err *err)
{
    json_t *entries = (json_t *)(uintptr_t)memory_entries(m, scope);
    size_t shown = 0, total = json_object_size(entries);
    /* The closing words take less than 80 bytes. */
    size_t room = out->len + LIMIT_WORKER_PREVIEW - 80;

    if (buf_adds(out, "{", err) < 0)
        return -1;
    for (void *it = json_object_iter(entries); it; it = json_object_iter_next(entries, it)) {
        int rc = preview_entry(out, json_object_iter_key(it), json_string_value(json_object_iter_value(it)),
                               shown == 0, room, err);
        if (rc < 0)
            return -1;
        shown += rc == 0;
    }
    if (buf_adds(out, "}", err) < 0)
        return -1;
    if (shown < total)
        return buf_addf(out, err, " and %zu more, see memory_get", total - shown);
    return 0;
}
