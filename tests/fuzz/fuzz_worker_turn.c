/* The turn on the worker's standard input: one that it takes becomes a request that the sanitizer lets
 * through as it is and that keeps the bounds of mission.md section 7, or is told to be too large. */
#include "support/fuzz.h"

#include "base/limits.h"
#include "deploy/worker/calls.h"
#include "deploy/worker/context.h"
#include "deploy/worker/text.h"
#include "schemas/model_input.h"

#include <string.h>

static void check_fields(const struct turn *t)
{
    PROPERTY(t->id && *t->id && t->speaker_id && *t->speaker_id && t->speaker_name && *t->speaker_name &&
                 t->prompt && t->time_zone && t->workspace && t->workspace[0] == '/',
             "a field is missing");
    PROPERTY((t->text != NULL) != (t->messages != NULL), "text or messages");
    PROPERTY(t->deadline_ms >= 1 && t->deadline_ms <= 600000, "%lld ms", (long long)t->deadline_ms);
}

/* As worker.c makes them. */
static json_t *current_messages(const struct turn *t, struct call_ids *ids)
{
    CLEANUP(free_str) char *cut = NULL;
    struct err err = {0};

    if (t->text)
        PROPERTY(text_cut(t->text, LIMIT_WORKER_MESSAGE, &cut, &err) == 0, "%s", err.text);
    json_t *messages =
        cut ? json_pack("[{s:s, s:s}]", "role", "user", "content", cut) : json_deep_copy(t->messages);
    PROPERTY(call_ids_repair(ids, messages, &err) == 0, "%s", err.text);
    return messages;
}

static void check_request(const struct turn *t, const char *text)
{
    CLEANUP(json_free) json_t *body = fuzz_json(text, strlen(text));
    CLEANUP(json_free) json_t *messages = NULL;
    CLEANUP(json_free) json_t *tools = NULL;
    struct json_faults faults = {0};

    PROPERTY(strlen(text) < (size_t)(t->messages ? LIMIT_BROKER_BODY : LIMIT_MESSAGES_BYTES), "%zu bytes",
             strlen(text));
    PROPERTY(body && model_input(body, "", &messages, &tools, &faults) == 0, "the sanitizer refuses it: %s",
             json_str(json_array_get(faults.list, 0), "pointer"));
    PROPERTY(json_equal(json_object_get(body, "messages"), messages), "the sanitizer changes the messages");
    PROPERTY(json_equal(json_object_get(body, "tools"), tools), "the sanitizer changes the tools");
    fuzz_check_call_ids(messages, false);
    const char *first = json_str(json_array_get(messages, 0), "content");
    PROPERTY(strcmp(json_str(json_array_get(messages, 0), "role"), "system") == 0 &&
                 strncmp(first, t->prompt, strlen(t->prompt)) == 0,
             "the operator's prompt is not first");
}

static void check_context(const struct turn *t, const struct tools *tools)
{
    CLEANUP(json_free)
    json_t *root = json_pack("{s:i, s:{s:s}, s:{}}", "version", 1, "channel", "k", "v", "speakers");
    CLEANUP(json_free)
    json_t *history = json_pack("[{s:{s:s, s:s}, s:s, s:s}]", "speaker", "id", "u", "name", "n", "user", "a",
                                "assistant", "b");
    struct memory memory = {.root = root, .dirfd = -1, .speaker = t->speaker_id};
    CLEANUP(call_ids_free) struct call_ids ids = {0};
    CLEANUP(context_free) struct context context = {0};
    CLEANUP(free_str) char *text = NULL;
    struct err err = {0};

    PROPERTY(call_ids_new(&ids, &err) == 0, "%s", err.text);
    PROPERTY(context_new(t, &memory, tools, history, current_messages(t, &ids), &context, &err) == 0, "%s",
             err.text);
    if (context_request(&context, &text, &err) == 0)
        check_request(t, text);
    else
        PROPERTY(err.code == ERR_TOO_LARGE && !text, "%s: %s", err_name(err.code), err.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(free_str) char *line = fuzz_text(data, size);
    CLEANUP(turn_free) struct turn turn = {0};
    CLEANUP(tools_free) struct tools tools = {0};
    struct err err = {0};

    if (turn_parse(line, size, &turn, &err) < 0) {
        fuzz_check_err(&err);
        PROPERTY(err.code == ERR_INVALID_JSON || err.code == ERR_INVALID, "%s", err_name(err.code));
        PROPERTY(!turn.root && !turn.messages && !turn.caller_tools, "an output beside an error");
        return 0;
    }
    check_fields(&turn);
    if (tools_build(&turn, &tools, &err) < 0) {
        fuzz_check_err(&err);
        PROPERTY(err.code == ERR_INVALID, "%s: %s", err_name(err.code), err.text);
        return 0;
    }
    PROPERTY(tools.count >= LIMIT_OWN_TOOLS && tools.count <= LIMIT_TOOLS &&
                 tools.count == json_array_size(tools.definitions),
             "%zu tools", tools.count);
    check_context(&turn, &tools);
    return 0;
}
