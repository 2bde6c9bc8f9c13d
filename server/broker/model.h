/* server/broker/model.h: POST /model: the guest's messages and tools, the operator's everything else. */
#pragma once

#include "base/json.h"
#include "base/secret.h"
#include "broker/env.h"

struct model_question {
    const char *body; /* of the guest */
    size_t body_len;
    const char *traceparent; /* "": none */
    int64_t deadline;        /* clock_mono_ms */
    int cancel_fd;           /* readable: the turn is over */
};

struct model_reply {
    char *text; /* the rebuilt answer; the caller's */
    uint64_t prompt_tokens, completion_tokens;
};

/* One model call, from body to rebuilt answer. ERR_INVALID_JSON; ERR_INVALID with faults; ERR_UPSTREAM for
 * whatever went wrong at the model, with its answer, or with the credential; ERR_TIMEOUT; ERR_CANCELED;
 * ERR_NO_MEMORY. The sentence is for the server log. Thread-safe. */
MUST_USE int model_call(const struct broker_env *env, const struct model_question *question,
                        struct model_reply *ret, struct json_faults *faults, struct err *err);

/* From an answer's text to the reply: parsed, searched for the credential (NULL: none), rebuilt.
 * ERR_UPSTREAM, ERR_INVALID_JSON, ERR_NO_MEMORY. Pure. */
MUST_USE int model_read_answer(const char *text, size_t len, const struct secret *credential,
                               struct model_reply *ret, struct err *err);
/* Rebuilds a parsed Chat Completions answer: the first choice's message (content, tool_calls), finish_reason
 * and usage; the reply's text is not set. Names and ids of calls are not judged here, since the worker
 * repairs them. ERR_UPSTREAM, ERR_NO_MEMORY. Pure. */
MUST_USE int model_rebuild(const json_t *answer, json_t **ret, struct model_reply *counts, struct err *err);
