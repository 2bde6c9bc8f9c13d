/* API keys; only on the admin socket (routes.c). */
#include "base/clock.h"
#include "base/secret.h"
#include "handlers/access.h"
#include "handlers/commit.h"
#include "handlers/resources.h"
#include "handlers/views.h"
#include "schemas/schema.h"

#include <stdio.h>
#include <string.h>

struct key_job {
    struct service *sv;
    json_t *body; /* POST: as the schema wants it */
    unsigned scopes;
    char id[KEY_ID_SIZE];
    char token[KEY_TOKEN_SIZE];
    struct api_key *key;
};

static void key_job_free(void *arg)
{
    struct key_job *job = arg;

    secret_wipe(job->token, sizeof job->token);
    json_decref(job->body);
    api_key_free(job->key);
    free(job);
}

static int create_job(struct store *st, void *arg, struct err *err)
{
    struct key_job *job = arg;

    api_key_free(STEAL(job->key)); /* from an earlier try */
    if (keys_create(st, json_str(job->body, "name"), job->scopes, json_object_get(job->body, "channels"),
                    clock_wall_ms(), job->id, job->token, err) < 0)
        return -1;
    return keys_get(st, job->id, &job->key, err);
}

/* The only time that the secret leaves the service. */
static enum http_result created(struct http_req *req, const struct err *result, void *arg)
{
    const struct key_job *job = arg;

    if (result->code != ERR_NONE)
        return http_problem(req, result, NULL);
    json_t *view = key_view(job->key);
    if (view && json_object_set_new(view, "key", json_string(job->token)) < 0) {
        json_decref(view);
        view = NULL;
    }
    return http_reply_json(req, 201, view);
}

static const struct commit_ops create_ops = {create_job, NULL, created, key_job_free};

static int check_body(const json_t *body, unsigned *scopes, struct json_faults *faults, struct err *err)
{
    size_t i;
    json_t *name;

    if (schema_check("key_create", body, "", faults) < 0)
        return json_faults_error(faults, err);
    *scopes = 0;
    json_array_foreach(json_object_get(body, "scopes"), i, name)
        *scopes |= scope_parse(json_string_value(name));
    return api_key_check(json_str(body, "name"), *scopes, json_object_get(body, "channels"), err);
}

enum http_result key_create(struct http_req *req)
{
    CLEANUP(json_faults_free) struct json_faults faults = {0};
    CLEANUP(json_free) json_t *body = NULL;
    unsigned scopes = 0;
    struct err err;

    if (http_body_json(req, &body, &err) < 0 || check_body(body, &scopes, &faults, &err) < 0)
        return http_problem(req, &err, &faults);
    struct key_job *job = calloc(1, sizeof *job);
    if (!job) {
        err_no_memory(&err);
        return http_problem(req, &err, NULL);
    }
    job->sv = service_of(req);
    job->body = json_steal(&body);
    job->scopes = scopes;
    return commit(req, &create_ops, job);
}

static int take(const struct api_key *k, void *arg, struct err *err)
{
    return json_array_append_new(arg, key_view(k)) < 0 ? err_no_memory(err) : 0;
}

static int list_job(struct store *st, void *arg, struct err *err)
{
    return keys_each(st, take, arg, err);
}

enum http_result keys_list(struct http_req *req)
{
    CLEANUP(json_free) json_t *data = json_array();
    struct err err;

    if (!data)
        err_no_memory(&err);
    if (!data || db_read(service_of(req)->db, list_job, data, &err) < 0)
        return http_problem(req, &err, NULL);
    return http_reply_json(req, 200,
                           json_pack("{s:O, s:b, s:n}", "data", data, "has_more", 0, "next_cursor"));
}

static int revoke_job(struct store *st, void *arg, struct err *err)
{
    const struct key_job *job = arg;

    return keys_revoke(st, job->id, clock_wall_ms(), err);
}

/* The key is not known any more, and what it waits for ends. (mission.md section 4: within 1 s) */
static void revoked(void *arg, const struct err *result)
{
    const struct key_job *job = arg;

    if (result->code != ERR_NONE)
        return;
    known_forget(job->sv->keys);
    bus_publish(job->sv->bus, job->id);
}

static enum http_result revoke_done(struct http_req *req, const struct err *result, void *arg)
{
    (void)arg;
    return result->code == ERR_NONE ? http_reply_empty(req) : http_problem(req, result, NULL);
}

static const struct commit_ops revoke_ops = {revoke_job, revoked, revoke_done, key_job_free};

enum http_result key_delete(struct http_req *req)
{
    const char *id = http_path_param(req, "id");
    struct key_job *job = calloc(1, sizeof *job);
    struct err err;

    if (!job || strlen(id) >= sizeof job->id) {
        if (job)
            err_set(&err, ERR_NOT_FOUND, "there is no such key");
        else
            err_no_memory(&err);
        free(job);
        return http_problem(req, &err, NULL);
    }
    job->sv = service_of(req);
    snprintf(job->id, sizeof job->id, "%s", id);
    return commit(req, &revoke_ops, job);
}
