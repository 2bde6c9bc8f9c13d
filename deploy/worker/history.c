#include "history.h"

#include "state.h"
#include "text.h"

#include "base/fs.h"
#include "base/limits.h"
#include "base/utf8.h"

#include <string.h>

#define FILE_NAME "history.json"

static bool short_string(const json_t *value)
{
    return json_is_string(value) &&
           utf8_chars(json_string_value(value), json_string_length(value)) <= LIMIT_SPEAKER_CHARS;
}

static size_t encoded(const json_t *value)
{
    return text_encoded(json_string_value(value), json_string_length(value));
}

static bool exchange_valid(const json_t *exchange)
{
    const json_t *speaker = json_object_get(exchange, "speaker");
    const json_t *user = json_object_get(exchange, "user");
    const json_t *assistant = json_object_get(exchange, "assistant");

    return json_object_size(exchange) == 3 && json_object_size(speaker) == 2 &&
           short_string(json_object_get(speaker, "id")) && short_string(json_object_get(speaker, "name")) &&
           json_is_string(user) && json_is_string(assistant) &&
           encoded(user) + encoded(assistant) <= LIMIT_WORKER_EXCHANGE;
}

static int read_list(int dirfd, json_t **ret, struct err *err)
{
    CLEANUP(buf_free) struct buf b = BUF_INIT(LIMIT_HISTORY_FILE);
    CLEANUP(json_free) json_t *list = NULL;
    json_t *exchange;
    size_t i;

    if (state_read(dirfd, FILE_NAME, &b, err) < 0)
        return -1;
    if (json_parse(b.data ? b.data : "", b.len, &list, err) < 0)
        return err_wrap(err, FILE_NAME);
    if (!json_is_array(list) || json_array_size(list) > LIMIT_WORKER_EXCHANGES)
        return err_set(err, ERR_INVALID, FILE_NAME " is not a list of at most %d exchanges",
                       LIMIT_WORKER_EXCHANGES);
    json_array_foreach(list, i, exchange) {
        if (!exchange_valid(exchange))
            return err_set(err, ERR_INVALID, FILE_NAME ": exchange %zu does not have the right form", i);
    }
    *ret = json_steal(&list);
    return 0;
}

int history_load(int dirfd, json_t **ret, struct err *err)
{
    json_t *list = NULL;
    int rc = 0;

    if (read_list(dirfd, &list, err) < 0) {
        if (err->code == ERR_NO_MEMORY)
            return -1;
        rc = err->code == ERR_NOT_FOUND ? 0 : 1;
        list = json_array();
    }
    if (!list)
        return err_no_memory(err);
    *ret = list;
    return rc;
}

int history_add(json_t *history, const char *speaker_id, const char *speaker_name, const char *user,
                const char *assistant, struct err *err)
{
    CLEANUP(free_str) char *said = NULL;
    CLEANUP(free_str) char *answered = NULL;
    size_t half = LIMIT_WORKER_EXCHANGE / 2;
    size_t user_size = text_encoded(user, strlen(user));
    size_t answer_size = text_encoded(assistant, strlen(assistant));

    /* A short text leaves its room to the other. */
    size_t user_room = answer_size < half ? LIMIT_WORKER_EXCHANGE - answer_size : half;
    size_t answer_room = user_size < half ? LIMIT_WORKER_EXCHANGE - user_size : half;
    if (text_cut(user, user_room, &said, err) < 0 || text_cut(assistant, answer_room, &answered, err) < 0)
        return -1;
    json_t *exchange = json_pack("{s:{s:s, s:s}, s:s, s:s}", "speaker", "id", speaker_id, "name",
                                 speaker_name, "user", said, "assistant", answered);
    if (!exchange || json_array_append_new(history, exchange) < 0)
        return err_no_memory(err);
    while (json_array_size(history) > LIMIT_WORKER_EXCHANGES)
        json_array_remove(history, 0);
    return 0;
}

int history_save(int dirfd, const json_t *history, struct err *err)
{
    CLEANUP(free_str) char *text = NULL;

    if (json_text(history, &text, err) < 0)
        return -1;
    return state_write(dirfd, FILE_NAME, text, strlen(text), err);
}

int history_clear(int dirfd, struct err *err)
{
    return fs_remove_tree(dirfd, FILE_NAME, err);
}
