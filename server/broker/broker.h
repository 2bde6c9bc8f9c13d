/* server/broker/broker.h: a turn's way out: HTTP on a Unix socket of its own (mission.md 6).
 *
 * Life: broker_new when the slot is made → broker_bind to its turn, once → broker_close at the end of the
 * turn → broker_free. Before bind and after close every request is answered 410. The environment is shared by
 * all brokers, built once, and freed after the last of them. */
#pragma once

#include "base/err.h"
#include "upstream/credential.h"

#include <stdbool.h>

struct broker_settings {
    const char *model_url;  /* https://…, http://… with allow_http, "embedded:echo", "embedded:script" */
    const char *model_name; /* what the upstream is asked for; not empty */
    unsigned max_tokens;    /* of one answer, 1..32768 */
    unsigned max_calls;     /* of one turn, 1..1000 */
    bool allow_http;
    bool allow_script;                    /* embedded:script is refused without it */
    struct credential_source *credential; /* NULL: the model asks for none */
};

struct broker_env;

/* ERR_CONFIG with the first rule that the settings do not keep. Does not read the credential. */
MUST_USE int broker_settings_check(const struct broker_settings *settings, struct err *err);
/* Checks the settings, reads the credential once (ERR_CONFIG when it is not acceptable), copies the strings
 * and, on success, takes the credential source over. secret_init and curl_global_init come before. */
MUST_USE int broker_env_new(const struct broker_settings *settings, struct broker_env **ret, struct err *err);
void broker_env_free(struct broker_env *env); /* accepts NULL */
DEFINE_CLEANUP(struct broker_env *, broker_env_free)

struct broker;

/* Makes DIR/broker.sock (mode 0600; path at most LIMIT_SOCKET_PATH) and listens. DIR exists and is the
 * slot's own. Keeps a reference to env. */
MUST_USE int broker_new(struct broker_env *env, const char *dir, struct broker **ret, struct err *err);

/* One call that has ended, for the turn's events (mission.md 9): no arguments, no results. */
struct broker_call {
    const char *kind; /* "model" */
    const char *name; /* the operator's model name */
    int status;       /* what the guest was answered; 410 when the turn's end aborted it */
    int64_t started_wall_ms;
    int64_t duration_ms;
    size_t bytes_in;                           /* body of the guest's request */
    size_t bytes_out;                          /* body of the answer to the guest */
    uint64_t prompt_tokens, completion_tokens; /* as the model reports them, 0 when it does not */
};

struct broker_turn {
    const char *turn_id;      /* copied; at most 63 bytes */
    const char *container_id; /* copied; at most 127 bytes: the peer's cgroup must name it */
    int64_t deadline;         /* of the turn, clock_mono_ms */
    const char *traceparent;  /* copied; sent to the model; "": none */
    /* Called once per finished call on a thread of the broker, without its lock, before the guest is
     * answered, never after broker_close has returned. Must be short. May be NULL. */
    void (*on_call)(void *arg, const struct broker_call *call);
    void *arg;
};

/* From now on the turn's container may call. ERR_CONFLICT when it was bound or closed before, ERR_INVALID
 * when a string does not fit. */
MUST_USE int broker_bind(struct broker *broker, const struct broker_turn *turn, struct err *err);
/* From now on 410; a call in flight is aborted; returns when none is in flight any more and on_call will not
 * be called again. Not from on_call. A second call does nothing. */
void broker_close(struct broker *broker);

struct broker_stats {
    unsigned calls;       /* that took a place in the budget */
    unsigned model_calls; /* of these, /model; the others are calls of tools */
    uint64_t prompt_tokens, completion_tokens;
    bool model_refused; /* the last model call failed at the model or its answer was not usable */
    bool budget_spent;  /* a call was refused because none was left */
};
/* At any time, from any thread; final after broker_close. */
void broker_stats(struct broker *broker, struct broker_stats *ret);
/* Closes if need be, stops listening, removes the socket. Accepts NULL. */
void broker_free(struct broker *broker);
DEFINE_CLEANUP(struct broker *, broker_free)
