#include "sandbox/verify.h"

#include "sandbox/spec.h"

#include <stdio.h>
#include <string.h>

#define FIELD_MAX 160

static int differs(const char *field, struct err *err)
{
    return err_set(err, ERR_ENGINE, "the engine did not make the container as asked: %s differs", field);
}

/* The engine answers an absent list or map as null, [] or {}; so does an absent text as "". */
static bool is_empty(const json_t *v)
{
    return !v || json_is_null(v) || json_is_false(v) || (json_is_string(v) && json_string_length(v) == 0) ||
           (json_is_integer(v) && json_integer_value(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0) || (json_is_object(v) && json_object_size(v) == 0);
}

static bool same(const json_t *want, const json_t *have)
{
    return (is_empty(want) && is_empty(have)) || json_equal(want, have);
}

/* Every member of `want` must be in `have`; `have` may hold more. */
static int compare(const char *prefix, const json_t *want, const json_t *have, const char *const *skip,
                   struct err *err)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)want, key, value) {
        char field[FIELD_MAX];
        bool skipped = false;
        for (size_t i = 0; skip[i]; i++)
            skipped = skipped || strcmp(skip[i], key) == 0;
        if (skipped || same(value, json_object_get(have, key)))
            continue;
        snprintf(field, sizeof field, "%s.%s", prefix, key);
        return differs(field, err);
    }
    return 0;
}

static bool holds(const json_t *array, const char *text)
{
    size_t i;
    json_t *item;

    json_array_foreach((json_t *)(uintptr_t)array, i, item) {
        if (json_is_string(item) && strcmp(json_string_value(item), text) == 0)
            return true;
    }
    return false;
}

/* The environment is ours and the image's, and nothing else: nothing of the host's has come in. */
static int check_env(const json_t *image_env, const json_t *env, struct err *err)
{
    size_t i, homes = 0;
    json_t *item;

    json_array_foreach((json_t *)(uintptr_t)env, i, item) {
        const char *text = json_string_value(item);
        if (text && strcmp(text, BOX_HOME) == 0)
            homes++;
        else if (!text || strncmp(text, "HOME=", 5) == 0 || !holds(image_env, text))
            return differs("Config.Env", err);
    }
    return homes == 1 ? 0 : differs("Config.Env", err);
}

/* What the kernel shows of the host in /proc and /sys stays masked, as the engine does by default. */
static int check_masks(const json_t *host, struct err *err)
{
    static const char *const masked[] = {"/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"};
    static const char *const read_only[] = {"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys",
                                            "/proc/sysrq-trigger"};

    for (size_t i = 0; i < ARRAY_LEN(masked); i++)
        if (!holds(json_object_get(host, "MaskedPaths"), masked[i]))
            return differs("HostConfig.MaskedPaths", err);
    for (size_t i = 0; i < ARRAY_LEN(read_only); i++)
        if (!holds(json_object_get(host, "ReadonlyPaths"), read_only[i]))
            return differs("HostConfig.ReadonlyPaths", err);
    return 0;
}

/* Could widen the seal; never asked for, so never there. */
static int check_absent(const json_t *inspect, struct err *err)
{
    static const char *const config[] = {"Volumes", "OnBuild"};
    static const char *const host[] = {
        "Binds",   "VolumesFrom",  "Devices", "DeviceRequests", "DeviceCgroupRules", "GroupAdd",
        "Sysctls", "PortBindings", "Links",   "ExtraHosts",     "UsernsMode",        "CgroupParent",
    };
    const json_t *c = json_object_get(inspect, "Config"), *h = json_object_get(inspect, "HostConfig");
    char field[FIELD_MAX];

    for (size_t i = 0; i < ARRAY_LEN(config); i++)
        if (!is_empty(json_object_get(c, config[i]))) {
            snprintf(field, sizeof field, "Config.%s", config[i]);
            return differs(field, err);
        }
    for (size_t i = 0; i < ARRAY_LEN(host); i++)
        if (!is_empty(json_object_get(h, host[i]))) {
            snprintf(field, sizeof field, "HostConfig.%s", host[i]);
            return differs(field, err);
        }
    return 0;
}

/* "Exactly two mounts" (docker.md 18): as the engine resolved them, whatever the specification said. */
static int check_mounts(const json_t *want, const json_t *have, struct err *err)
{
    size_t i, j;
    json_t *w, *m;

    if (json_array_size(have) != json_array_size(want))
        return differs("Mounts", err);
    json_array_foreach((json_t *)(uintptr_t)want, i, w) {
        bool found = false;
        json_array_foreach((json_t *)(uintptr_t)have, j, m) {
            found = found ||
                    (same(json_object_get(w, "Type"), json_object_get(m, "Type")) &&
                     same(json_object_get(w, "Source"), json_object_get(m, "Source")) &&
                     same(json_object_get(w, "Target"), json_object_get(m, "Destination")) &&
                     json_is_true(json_object_get(w, "ReadOnly")) != json_is_true(json_object_get(m, "RW")) &&
                     same(json_object_get(json_object_get(w, "BindOptions"), "Propagation"),
                          json_object_get(m, "Propagation")));
        }
        if (!found)
            return differs("Mounts", err);
    }
    return 0;
}

int verify_container(const json_t *body, const json_t *image_env, const json_t *inspect, struct err *err)
{
    /* Compared on their own below, or (HostConfig.Mounts) as the engine resolved them. Labels of the image
     * stay beside ours. */
    static const char *const skip_config[] = {"HostConfig", "Image", "Env", "Labels", NULL};
    static const char *const skip_host[] = {"Mounts", NULL};
    static const char *const skip_none[] = {NULL};
    const json_t *config = json_object_get(inspect, "Config");
    const json_t *host = json_object_get(inspect, "HostConfig");
    const json_t *want_host = json_object_get(body, "HostConfig");

    if (!same(json_object_get(body, "Image"), json_object_get(inspect, "Image")))
        return differs("Image", err);
    if (compare("Config", body, config, skip_config, err) < 0 ||
        compare("Config.Labels", json_object_get(body, "Labels"), json_object_get(config, "Labels"),
                skip_none, err) < 0 ||
        check_env(image_env, json_object_get(config, "Env"), err) < 0 ||
        compare("HostConfig", want_host, host, skip_host, err) < 0 || check_absent(inspect, err) < 0 ||
        check_masks(host, err) < 0)
        return -1;
    return check_mounts(json_object_get(want_host, "Mounts"), json_object_get(inspect, "Mounts"), err);
}

int verify_image(const json_t *image, struct err *err)
{
    const json_t *config = json_object_get(image, "Config");

    if (!json_str(image, "Id"))
        return err_set(err, ERR_IMAGE, "the engine does not tell the image's id");
    if (!is_empty(json_object_get(config, "Volumes")))
        return err_set(err, ERR_IMAGE, "the image declares volumes, which would be a third mount");
    if (is_empty(json_object_get(config, "Entrypoint")) && is_empty(json_object_get(config, "Cmd")))
        return err_set(err, ERR_IMAGE, "the image has neither an entrypoint nor a command");
    return 0;
}
