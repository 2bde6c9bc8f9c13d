#include "sandbox/box.h"

#include "base/clock.h"
#include "base/id.h"
#include "base/limits.h"
#include "sandbox/seccomp.h"
#include "sandbox/verify.h"

#include <stdio.h>
#include <string.h>

#define PING_MS       2000
#define SWEEP_PAGE    400
#define SWEEP_CALL_MS 10000
#define SWEEP_ROUNDS  64 /* of a page each */

void sandbox_free(struct sandbox *sandbox)
{
    if (!sandbox)
        return;
    engine_free(sandbox->engine);
    pthread_mutex_destroy(&sandbox->lock);
    free(sandbox->image);
    free(sandbox->installation);
    free(sandbox->boot);
    free(sandbox->profile);
    free(sandbox);
}
DEFINE_CLEANUP(struct sandbox *, sandbox_free)

/* Every rule that does not depend on one box, checked with stand-ins for what does. */
static int check_config(const struct sandbox_config *config, struct box_spec *spec, struct err *err)
{
    *spec = (struct box_spec){.name = BOX_NAME_PREFIX "00000000000000000000000000000000",
                              .slot = "00000000000000000000000000000000",
                              .image_id = config->image,
                              .broker_dir = "/b",
                              .workspace_dir = "/w",
                              .installation = config->installation,
                              .boot = config->boot,
                              .uid = config->uid,
                              .gid = config->gid,
                              .memory_mb = config->memory_mb,
                              .cpus = config->cpus,
                              .pids = config->pids,
                              .nofile = config->nofile,
                              .tmp_mb = config->tmp_mb};
    return spec_check(spec, err);
}

static int make_profile(char **ret, struct err *err)
{
    CLEANUP(json_free) json_t *profile = NULL;

    if (seccomp_profile(SECCOMP_NATIVE, &profile, err) < 0)
        return -1;
    return json_text(profile, ret, err);
}

int sandbox_new(const struct sandbox_config *config, struct sandbox **ret, struct err *err)
{
    struct box_spec spec;

    if (check_config(config, &spec, err) < 0)
        return -1;
    CLEANUP(sandbox_free_p) struct sandbox *s = calloc(1, sizeof *s);
    if (!s)
        return err_no_memory(err);
    pthread_mutex_init(&s->lock, NULL);
    s->image = strdup(config->image);
    s->installation = strdup(config->installation);
    s->boot = strdup(config->boot);
    if (!s->image || !s->installation || !s->boot)
        return err_no_memory(err);
    s->stderr_bytes = config->stderr_bytes;
    s->spec = spec;
    s->spec.image_id = s->image;
    s->spec.installation = s->installation;
    s->spec.boot = s->boot;
    if (make_profile(&s->profile, err) < 0 || engine_new(config->engine_socket, &s->engine, err) < 0)
        return -1;
    *ret = STEAL(s);
    return 0;
}

int sandbox_ping(struct sandbox *sandbox, struct err *err)
{
    return engine_ping(sandbox->engine, PING_MS, err);
}

/* The image's id and environment (a new reference). */
static int resolve_image(struct sandbox *s, char id[BOX_IMAGE_ID], json_t **env, struct err *err)
{
    CLEANUP(json_free) json_t *image = NULL;
    CLEANUP(buf_free) struct buf path = BUF_INIT(BOX_REQUEST_MAX);
    int status;

    if (buf_adds(&path, "/images/", err) < 0 || engine_path_add(&path, s->image, err) < 0 ||
        buf_adds(&path, "/json", err) < 0)
        return -1;
    if (engine_call(s->engine, "GET", path.data, NULL, BOX_CALL_MS, &status, &image, err) < 0)
        return status == 404 ? err_set(err, ERR_IMAGE, "image %s is not on the engine", s->image)
                             : err_wrap(err, "image %s", s->image);
    if (verify_image(image, err) < 0)
        return err_wrap(err, "image %s", s->image);
    snprintf(id, BOX_IMAGE_ID, "%s", json_str(image, "Id"));
    *env = json_incref(json_object_get(json_object_get(image, "Config"), "Env"));
    return 0;
}

static int probe(struct sandbox *s, const char *image_id, const json_t *image_env, const char *broker_dir,
                 const char *workspace_dir, struct err *err)
{
    CLEANUP(json_free) json_t *body = NULL, *inspect = NULL;
    char slot[ID_HEX_128];
    struct box *box = NULL;
    struct err second;

    id_hex(slot, BOX_SLOT_HEX / 2);
    int rc = box_make(s, image_id, slot, broker_dir, workspace_dir, NULL, NULL, &box, &body, err);
    if (rc == 0)
        rc = box_inspect(box, BOX_CALL_MS, &inspect, err);
    if (rc == 0)
        rc = verify_container(body, image_env, inspect, err);
    /* What cannot be removed now is a slot that nobody keeps: the sweep finds it. */
    if (box && box_remove(box, rc == 0 ? err : &second) < 0)
        rc = -1;
    box_free(box);
    return rc < 0 ? err_wrap(err, "probe container") : 0;
}

int sandbox_prepare(struct sandbox *s, const char *probe_broker_dir, const char *probe_workspace_dir,
                    struct err *err)
{
    CLEANUP(json_free) json_t *env = NULL;
    char id[BOX_IMAGE_ID];

    if (sandbox_ping(s, err) < 0 || resolve_image(s, id, &env, err) < 0 ||
        probe(s, id, env, probe_broker_dir, probe_workspace_dir, err) < 0)
        return -1;
    pthread_mutex_lock(&s->lock);
    memcpy(s->image_id, id, sizeof id);
    pthread_mutex_unlock(&s->lock);
    return 0;
}

static int list_owned(struct sandbox *s, json_t **ret, struct err *err)
{
    CLEANUP(buf_free) struct buf path = BUF_INIT(BOX_REQUEST_MAX);
    CLEANUP(free_str) char *text = NULL;
    CLEANUP(json_free)
    json_t *filters = json_pack("{s:[s++]}", "label", BOX_LABEL_OWNER, "=", s->installation);

    if (!filters)
        return err_no_memory(err);
    if (json_text(filters, &text, err) < 0 ||
        buf_addf(&path, err, "/containers/json?all=1&limit=%d&filters=", SWEEP_PAGE) < 0 ||
        engine_path_add(&path, text, err) < 0)
        return -1;
    return engine_call(s->engine, "GET", path.data, NULL, SWEEP_CALL_MS, NULL, ret, err);
}

struct sweep {
    bool (*keep)(const char *slot, const char *boot, void *arg);
    void *arg;
    struct sandbox_swept *result;
};

static void sweep_one(struct sandbox *s, const json_t *container, struct sweep *w)
{
    const json_t *labels = json_object_get(container, "Labels");
    const char *owner = json_str(labels, BOX_LABEL_OWNER), *id = json_str(container, "Id");
    const char *slot = json_str(labels, BOX_LABEL_SLOT), *boot = json_str(labels, BOX_LABEL_BOOT);
    struct err err;

    /* The engine has filtered already; a mistake here would kill another service's turns. */
    if (!id || !owner || strcmp(owner, s->installation) != 0)
        return;
    if (w->keep(slot ? slot : "", boot ? boot : "", w->arg))
        return;
    if (container_remove(s->engine, id, clock_mono_ms() + LIMIT_REMOVE_TRY_MS, &err) == 0)
        w->result->removed++;
    else if (w->result->left++ == 0)
        w->result->why = err;
}

int sandbox_sweep(struct sandbox *s, bool (*keep)(const char *slot, const char *boot, void *arg), void *arg,
                  struct sandbox_swept *ret, struct err *err)
{
    struct sweep w = {.keep = keep, .arg = arg, .result = ret};

    *ret = (struct sandbox_swept){0};
    for (unsigned round = 0; round < SWEEP_ROUNDS; round++) {
        CLEANUP(json_free) json_t *list = NULL;
        size_t i;
        json_t *container;
        unsigned before = ret->removed;
        if (list_owned(s, &list, err) < 0)
            return err_wrap(err, "sweep");
        ret->left = 0; /* those are on the page again */
        json_array_foreach(list, i, container)
            sweep_one(s, container, &w);
        if (json_array_size(list) < SWEEP_PAGE || ret->removed == before)
            break;
    }
    return 0;
}
