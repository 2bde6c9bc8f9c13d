#include "broker/model.h"

#include "base/limits.h"
#include "broker/embedded.h"
#include "broker/redact.h"
#include "schemas/model_input.h"

#include <string.h>

struct input {
    json_t *messages, *tools; /* tools may be NULL */
};

static void input_free(struct input *in)
{
    json_decref(in->messages);
    json_decref(in->tools);
}

static int read_input(const struct model_question *q, struct input *in, struct json_faults *faults,
                      struct err *err)
{
    CLEANUP(json_free) json_t *body = NULL;

    if (json_parse(q->body, q->body_len, &body, err) < 0)
        return -1;
    if (model_input(body, "", &in->messages, &in->tools, faults) < 0)
        return json_faults_error(faults, err);
    return 0;
}

/* What goes up: nothing of it but messages and tools comes from the guest. */
static int build_request(const struct broker_env *env, const struct input *in, char **ret, struct err *err)
{
    json_t *tools = json_array_size(in->tools) > 0 ? in->tools : NULL;
    CLEANUP(json_free)
    json_t *request = json_pack("{s:s, s:i, s:O, s:O*}", "model", env->name, "max_tokens",
                                (int)env->max_tokens, "messages", in->messages, "tools", tools);

    return request ? json_text(request, ret, err) : err_no_memory(err);
}

static int ask_upstream(const struct broker_env *env, const struct model_question *q, const struct input *in,
                        const struct secret *credential, struct buf *answer, struct err *err)
{
    CLEANUP(free_str) char *body = NULL;
    int status = 0;

    if (build_request(env, in, &body, err) < 0)
        return -1;
    const struct upstream_request request = {
        .url = env->url,
        .allow_http = env->allow_http,
        .body = body,
        .body_len = strlen(body),
        .bearer = credential->data ? credential : NULL,
        .traceparent = q->traceparent,
        .deadline = q->deadline,
        .cancel_fd = q->cancel_fd,
    };
    if (upstream_post(env->upstream, &request, &status, answer, err) < 0)
        return -1;
    if (status != 200)
        return err_set(err, ERR_UPSTREAM, "the model's server answered with status %d", status);
    return 0;
}

static int ask(const struct broker_env *env, const struct model_question *q, const struct input *in,
               const struct secret *credential, struct buf *answer, struct err *err)
{
    if (env->way == MODEL_UPSTREAM)
        return ask_upstream(env, q, in, credential, answer, err);
    return embedded_answer(env->way == MODEL_ECHO ? EMBEDDED_ECHO : EMBEDDED_SCRIPT, in->messages, in->tools,
                           q->deadline, q->cancel_fd, answer, err);
}

/* The guest learns of these by name; all else is the model's failure. */
static int as_upstream(struct err *err)
{
    if (err->code != ERR_TIMEOUT && err->code != ERR_CANCELED && err->code != ERR_NO_MEMORY)
        err->code = ERR_UPSTREAM;
    return -1;
}

int model_read_answer(const char *text, size_t len, const struct secret *credential, struct model_reply *ret,
                      struct err *err)
{
    CLEANUP(json_free) json_t *answer = NULL;
    CLEANUP(json_free) json_t *rebuilt = NULL;
    struct model_reply reply = {0};

    if (json_parse(text, len, &answer, err) < 0)
        return err_wrap(err, "the model's answer");
    if (credential && redact_check(answer, credential, err) < 0)
        return -1;
    if (model_rebuild(answer, &rebuilt, &reply, err) < 0 || json_text(rebuilt, &reply.text, err) < 0)
        return -1;
    *ret = reply;
    return 0;
}

int model_call(const struct broker_env *env, const struct model_question *q, struct model_reply *ret,
               struct json_faults *faults, struct err *err)
{
    CLEANUP(input_free) struct input in = {0};
    CLEANUP(secret_free) struct secret credential = {0};
    CLEANUP(buf_free) struct buf text = BUF_INIT(LIMIT_UPSTREAM_ANSWER);

    if (read_input(q, &in, faults, err) < 0)
        return -1;
    if (env->credential && credential_read(env->credential, q->cancel_fd, &credential, err) < 0)
        return as_upstream(err);
    if (ask(env, q, &in, &credential, &text, err) < 0)
        return as_upstream(err);
    if (model_read_answer(text.data ? text.data : "", text.len, credential.data ? &credential : NULL, ret,
                          err) < 0)
        return as_upstream(err);
    return 0;
}
