#include "broker/env.h"

#include "broker/budget.h"

#include <string.h>

#define MAX_TOKENS 32768

static enum model_way way_of(const char *url)
{
    return strcmp(url, "embedded:echo") == 0     ? MODEL_ECHO
           : strcmp(url, "embedded:script") == 0 ? MODEL_SCRIPT
                                                 : MODEL_UPSTREAM;
}

int broker_settings_check(const struct broker_settings *s, struct err *err)
{
    enum model_way way = way_of(s->model_url);

    if (way == MODEL_SCRIPT && !s->allow_script)
        return err_set(err, ERR_CONFIG,
                       "model.url: embedded:script needs model.allow_script and a loopback listen address");
    if (way == MODEL_UPSTREAM && upstream_check_url(s->model_url, s->allow_http, err) < 0)
        return err_wrap(err, "model.url");
    if (!s->model_name[0])
        return err_set(err, ERR_CONFIG, "model.name must not be empty");
    if (s->max_tokens < 1 || s->max_tokens > MAX_TOKENS)
        return err_set(err, ERR_CONFIG, "model.max_tokens must be 1 to %d", MAX_TOKENS);
    if (s->max_calls < 1 || s->max_calls > BUDGET_CALLS_MAX)
        return err_set(err, ERR_CONFIG, "model.max_calls must be 1 to %d", BUDGET_CALLS_MAX);
    return 0;
}

static int try_credential(const struct credential_source *source, struct err *err)
{
    CLEANUP(secret_free) struct secret credential = {0};

    if (!source || credential_read(source, -1, &credential, err) == 0)
        return 0;
    if (err->code != ERR_NO_MEMORY)
        err->code = ERR_CONFIG;
    return err_wrap(err, "model.credential");
}

int broker_env_new(const struct broker_settings *s, struct broker_env **ret, struct err *err)
{
    CLEANUP(broker_env_free_p) struct broker_env *env = NULL;

    if (broker_settings_check(s, err) < 0 || try_credential(s->credential, err) < 0)
        return -1;
    env = calloc(1, sizeof *env);
    if (!env)
        return err_no_memory(err);
    env->way = way_of(s->model_url);
    env->max_tokens = s->max_tokens;
    env->max_calls = s->max_calls;
    env->allow_http = s->allow_http;
    env->url = strdup(s->model_url);
    env->name = strdup(s->model_name);
    if (!env->url || !env->name)
        return err_no_memory(err);
    if (upstream_new(&env->upstream, err) < 0 || watchdog_new(&env->watchdog, err) < 0)
        return -1;
    env->credential = s->credential;
    *ret = STEAL(env);
    return 0;
}

void broker_env_free(struct broker_env *env)
{
    if (!env)
        return;
    watchdog_free(env->watchdog);
    upstream_free(env->upstream);
    credential_source_free(env->credential);
    free(env->url);
    free(env->name);
    free(env);
}
