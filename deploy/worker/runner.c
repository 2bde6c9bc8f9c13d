#include "runner.h"

#include "text.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

/* What a tool answered, before it is cut; a byte that is not UTF-8 grows to three. */
#define ANSWER_INIT BUF_INIT(4 * LIMIT_UPSTREAM_ANSWER)

static int scope_of(const json_t *arguments, enum memory_scope *ret)
{
    const char *scope = json_str(arguments, "scope");

    if (!scope || (strcmp(scope, "speaker") != 0 && strcmp(scope, "channel") != 0))
        return -1;
    *ret = scope[0] == 's' ? MEMORY_SPEAKER : MEMORY_CHANNEL;
    return 0;
}

static int list_keys(const json_t *entries, struct buf *out, struct err *err)
{
    CLEANUP(json_free) json_t *keys = json_array();
    CLEANUP(free_str) char *text = NULL;
    json_t *all = (json_t *)(uintptr_t)entries;

    for (void *it = json_object_iter(all); it; it = json_object_iter_next(all, it))
        if (json_array_append_new(keys, json_string(json_object_iter_key(it))) < 0)
            return err_no_memory(err);
    if (!keys)
        return err_no_memory(err);
    if (json_text(keys, &text, err) < 0)
        return -1;
    return buf_addf(out, err, "Keys: %s", text);
}

static int run_memory(struct runner *r, const struct call *call, struct buf *out, struct err *err)
{
    const char *key = json_str(call->arguments, "key"), *value = json_str(call->arguments, "value");
    enum tool_kind kind = call->tool->kind;
    enum memory_scope scope;
    int rc = 0;

    if (scope_of(call->arguments, &scope) < 0)
        return buf_adds(out, "Refused: scope must be \"speaker\" or \"channel\".", err);
    if (!key && (kind != TOOL_MEMORY_GET || json_object_get(call->arguments, "key")))
        return buf_adds(out, "Refused: key must be a string.", err);
    if (kind == TOOL_MEMORY_SET && !value)
        return buf_adds(out, "Refused: value must be a string.", err);
    if (kind == TOOL_MEMORY_GET && !key)
        return list_keys(memory_entries(r->memory, scope), out, err);
    if (kind == TOOL_MEMORY_GET) {
        const char *found = memory_get(r->memory, scope, key);
        return buf_adds(out, found ? found : "There is nothing under this key.", err);
    }
    if (kind == TOOL_MEMORY_SET)
        rc = memory_set(r->memory, scope, key, value, err);
    else
        rc = memory_remove(r->memory, scope, key, err);
    if (rc < 0 && err->code == ERR_NO_MEMORY)
        return -1;
    if (rc < 0 && err->code == ERR_INVALID)
        return buf_addf(out, err, "Refused: %s.", err->text);
    if (rc < 0)
        return buf_adds(out, "The memory could not be stored.", err);
    return buf_adds(out, kind == TOOL_MEMORY_SET ? "Remembered." : "Forgotten.", err);
}

/* POSTs to a tool's route. *ret is the answer's body as valid text, or stays NULL when it failed and `out`
 * says so. */
static int ask(struct runner *r, const char *path, const char *body, struct buf *out, char **ret,
               struct err *err)
{
    struct broker_answer answer = {0};
    struct err ignored;
    CLEANUP(json_free) json_t *fault = NULL;

    if (broker_post(r->link, path, body, strlen(body), &answer, err) < 0) {
        if (err->code == ERR_UPSTREAM || err->code == ERR_TOO_LARGE || err->code == ERR_SYSTEM)
            return buf_adds(out, "The tool could not be reached.", err);
        return -1;
    }
    CLEANUP(free_str) char *text = utf8_sanitize(answer.body.data ? answer.body.data : "", answer.body.len);
    buf_free(&answer.body);
    if (!text)
        return err_no_memory(err);
    if (answer.status == 410)
        return err_set(err, ERR_CANCELED, "the broker is closed");
    if (answer.status >= 200 && answer.status < 300) {
        *ret = STEAL(text);
        return 0;
    }
    if (json_parse(text, strlen(text), &fault, &ignored) < 0)
        return buf_addf(out, err, "The tool failed (%d).", answer.status);
    const char *message = json_str(json_object_get(fault, "error"), "message");
    return buf_addf(out, err, "The tool failed (%d): %s", answer.status,
                    message ? message : "no reason given");
}

static int run_host(struct runner *r, const struct call *call, struct buf *out, struct err *err)
{
    CLEANUP(free_str) char *body = NULL;
    CLEANUP(free_str) char *text = NULL;
    char path[80];

    snprintf(path, sizeof path, "/tools/%s", call->tool->target);
    if (json_text(call->arguments, &body, err) < 0)
        return -1;
    if (ask(r, path, body, out, &text, err) < 0)
        return -1;
    return text ? buf_adds(out, text, err) : 0;
}

/* The text of a tools/call result; what is no text is only named. (MCP, tools/call result: content blocks) */
static int add_content(const json_t *result, struct buf *out, struct err *err)
{
    const json_t *content = json_object_get(result, "content");
    const json_t *structured = json_object_get(result, "structuredContent");
    const json_t *block;
    CLEANUP(free_str) char *text = NULL;
    size_t i;

    json_array_foreach(content, i, block) {
        const char *type = json_str(block, "type"), *said = json_str(block, "text");
        if (out->len > 2 * LIMIT_WORKER_ANSWER)
            return 0; /* the cut falls before this */
        if (i > 0 && buf_adds(out, "\n", err) < 0)
            return -1;
        if (type && strcmp(type, "text") == 0 && said) {
            if (buf_adds(out, said, err) < 0)
                return -1;
        } else if (buf_adds(out, "[a part that is not text was left out]", err) < 0) {
            return -1;
        }
    }
    if (json_array_size(content) > 0 || !structured)
        return 0;
    return json_text(structured, &text, err) < 0 ? -1 : buf_adds(out, text, err);
}

static int read_rpc(const char *text, int id, struct buf *out, struct err *err)
{
    CLEANUP(json_free) json_t *rpc = NULL;
    struct err ignored;

    if (json_parse(text, strlen(text), &rpc, &ignored) < 0)
        return buf_adds(out, "The tool did not answer properly.", err);
    const char *version = json_str(rpc, "jsonrpc");
    const json_t *fault = json_object_get(rpc, "error"), *result = json_object_get(rpc, "result");
    if (!version || strcmp(version, "2.0") != 0 || json_integer_value(json_object_get(rpc, "id")) != id ||
        (!json_is_object(fault) && !json_is_object(result)))
        return buf_adds(out, "The tool did not answer properly.", err);
    if (json_is_object(fault)) { /* some servers write "error": null beside a result */
        const char *message = json_str(fault, "message");
        return buf_addf(out, err, "The tool failed: %s", message ? message : "no reason given");
    }
    if (json_is_true(json_object_get(result, "isError")) &&
        buf_adds(out, "The tool reported an error: ", err) < 0)
        return -1;
    return add_content(result, out, err);
}

static int run_mcp(struct runner *r, const struct call *call, struct buf *out, struct err *err)
{
    int id = r->next_rpc_id++;
    CLEANUP(json_free)
    json_t *rpc = json_pack("{s:s, s:i, s:s, s:{s:s, s:O}}", "jsonrpc", "2.0", "id", id, "method",
                            "tools/call", "params", "name", call->tool->target, "arguments", call->arguments);
    CLEANUP(free_str) char *body = NULL;
    CLEANUP(free_str) char *text = NULL;
    char path[80];

    if (!rpc)
        return err_no_memory(err);
    if (json_text(rpc, &body, err) < 0)
        return -1;
    snprintf(path, sizeof path, "/mcp/%s", call->tool->server);
    if (ask(r, path, body, out, &text, err) < 0)
        return -1;
    return text ? read_rpc(text, id, out, err) : 0;
}

int runner_call(struct runner *r, const struct call *call, char **ret, struct err *err)
{
    CLEANUP(buf_free) struct buf out = ANSWER_INIT;
    int rc;

    if (!call->tool)
        rc = buf_adds(&out, "Refused: there is no tool of that name. Use only the tools you were offered.",
                      err);
    else if (!call->arguments)
        rc = buf_adds(&out, "Refused: the arguments are not a JSON object.", err);
    else if (call->tool->kind == TOOL_HOST)
        rc = run_host(r, call, &out, err);
    else if (call->tool->kind == TOOL_MCP)
        rc = run_mcp(r, call, &out, err);
    else
        rc = run_memory(r, call, &out, err);
    if (rc < 0)
        return -1;
    return text_cut(out.data ? out.data : "", LIMIT_WORKER_ANSWER, ret, err);
}
