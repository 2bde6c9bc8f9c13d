/* The worker's reply and what it means for the turn: an accepted one is accepted again as it is stored, holds
 * only what mission.md sections 1 and 5 allow, and every turn has either a reply or a reason. */
#include "support/fuzz.h"

#include "base/limits.h"
#include "base/utf8.h"
#include "pool/internal.h"
#include "schemas/model_input.h"
#include "schemas/protocol.h"
#include "schemas/schema.h"

#include <string.h>

static void check_reply(const json_t *reply)
{
    const char *text = json_str(reply, "text"), *key;
    json_t *calls = json_object_get(reply, "tool_calls"), *member;

    PROPERTY(text && utf8_chars(text, strlen(text)) <= LIMIT_REPLY_TEXT_CHARS, "the text");
    json_object_foreach((json_t *)(uintptr_t)reply, key, member) {
        PROPERTY(strcmp(key, "text") == 0 || strcmp(key, "tool_calls") == 0 || strcmp(key, "data") == 0,
                 "key %s", key);
    }
    if (!calls)
        return;
    struct json_faults faults = {0};
    CLEANUP(json_free) json_t *rebuilt = NULL;
    PROPERTY(model_tool_calls(calls, "", &rebuilt, &faults) == 0, "tool_calls that the sanitizer refuses");
    PROPERTY(json_equal(rebuilt, calls), "tool_calls that the sanitizer changes");
    PROPERTY(json_array_size(calls) > 0, "no tool_calls");
}

static void check_again(json_t *reply, bool ok)
{
    CLEANUP(json_free) json_t *line = json_copy(reply);
    CLEANUP(free_str) char *text = NULL;
    struct worker_reply again = {0};
    struct json_faults faults = {0};
    struct err err = {0};

    PROPERTY(json_object_set_new(line, "ok", json_boolean(ok)) == 0 && json_text(line, &text, &err) == 0,
             "text");
    PROPERTY(worker_reply_parse(text, strlen(text), &again, &err) == 0, "refused again: %s", err.text);
    PROPERTY(again.ok == ok && json_equal(again.reply, reply), "changed: %s", text);
    PROPERTY(schema_check("answers#reply", reply, "", &faults) == 0, "no answer may hold it: %s", text);
    json_decref(again.reply);
}

static enum ending end_with(struct fuzz_input *in, const char *text, size_t len, bool *replied)
{
    static const enum box_end ends[] = {BOX_REPLY,        BOX_REPLY,   BOX_EXITED,     BOX_TIMEOUT,
                                        BOX_OUTPUT_LIMIT, BOX_ABORTED, BOX_ENGINE_LOST};
    uint8_t kind = fuzz_byte(in), counts = fuzz_byte(in), more = fuzz_byte(in);
    struct box_result result = {
        .end = ends[kind % ARRAY_LEN(ends)],
        .out = {.data = (char *)(uintptr_t)text, .len = len, .cap = len + 1, .max = len + 1},
        .exit_code = more & 1 ? more : 0,
        .signal = more & 2 ? 9 : 0,
        .oom = counts & 1,
        .oom_kills = counts & 2 ? 1 : 0,
        .pids_hits = counts & 4 ? 1 : 0,
    };
    const struct broker_stats stats = {.budget_spent = counts & 8, .model_refused = counts & 16};
    enum ending asked = counts & 32 ? END_SERVER_RESTARTED : END_NONE;
    json_t *reply = NULL;

    enum ending end = ending_of(&result, &stats, asked, counts & 64, &reply);
    PROPERTY((end == END_NONE) == (reply != NULL), "ending %d with%s a reply", (int)end, reply ? "" : "out");
    PROPERTY(end == END_NONE || (ending_name(end)[0] && ending_detail(end)[0]), "ending %d has no name",
             (int)end);
    PROPERTY(!reply || result.end == BOX_REPLY || result.end == BOX_EXITED, "a reply where none came");
    *replied = reply != NULL;
    json_decref(reply);
    return end;
}

/* The worker's line came, or it ended well. */
static bool in_time(const uint8_t *fate, size_t size)
{
    uint8_t kind = (size > 0 ? fate[0] : 0) % 7, more = size > 2 ? fate[2] : 0;

    return kind <= 1 || (kind == 2 && !(more & 1) && !(more & 2));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    const uint8_t *head = data;
    struct worker_reply reply = {0};
    struct err err = {0};
    bool replied = false;

    for (int i = 0; i < 3; i++)
        fuzz_byte(&in);
    CLEANUP(free_str) char *text = fuzz_text(in.data, in.size);
    int rc = worker_reply_parse(text, in.size, &reply, &err);
    if (rc == 0) {
        check_reply(reply.reply);
        check_again(reply.reply, reply.ok);
        json_decref(reply.reply);
    } else {
        fuzz_check_err(&err);
        PROPERTY(err.code == ERR_INVALID_JSON || err.code == ERR_INVALID, "%s", err_name(err.code));
        PROPERTY(!reply.reply, "a reply beside a refusal");
    }
    struct fuzz_input fate = {head, size - in.size};
    end_with(&fate, text, in.size, &replied);
    PROPERTY(!replied || (rc == 0 && reply.ok), "a turn succeeds with a reply that is refused");
    bool wanted = in_time(head, size - in.size) && in.size > 0 && rc == 0 && reply.ok;
    PROPERTY(replied || !wanted, "a turn fails with a good reply");
    return 0;
}
