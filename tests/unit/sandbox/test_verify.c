/* The check of a created container: each field that differs is named. */
#include "sandbox/spec.h"
#include "sandbox/verify.h"

#include <criterion/criterion.h>
#include <string.h>

#define SLOT "0123456789abcdef0123456789abcdef"

struct pair {
    json_t *body, *inspect, *env;
};

/* What an engine would answer about the body: the same fields, with what it adds. */
static struct pair make(void)
{
    const struct box_spec spec = {"cloister-" SLOT,
                                  "sha256:abc",
                                  "/r/t",
                                  "/s/w",
                                  "home",
                                  "b1",
                                  SLOT,
                                  1000,
                                  1000,
                                  512,
                                  1.0,
                                  64,
                                  256,
                                  64};
    struct pair p = {0};
    struct err err;

    cr_assert_eq(spec_body(&spec, "{}", &p.body, &err), 0, "%s", err.text);
    p.env = json_pack("[s, s]", "PATH=/bin", "HOME=/root");
    json_t *config = json_deep_copy(p.body);
    json_t *host = json_incref(json_object_get(config, "HostConfig"));
    json_object_del(config, "HostConfig");
    json_object_set_new(config, "Env", json_pack("[s, s]", "HOME=/tmp/home", "PATH=/bin"));
    json_object_set_new(json_object_get(config, "Labels"), "of.the.image", json_string("stays"));
    json_object_set_new(config, "Volumes", json_null());
    json_object_set_new(host, "CapAdd", json_null());
    json_object_set_new(host, "Runtime", json_string("runc"));
    json_object_set_new(
        host, "MaskedPaths",
        json_pack("[s, s, s, s]", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"));
    json_object_set_new(host, "ReadonlyPaths",
                        json_pack("[s, s, s, s, s]", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys",
                                  "/proc/sysrq-trigger"));
    p.inspect =
        json_pack("{s:s, s:o, s:o, s:[{s:s, s:s, s:s, s:b, s:s}, {s:s, s:s, s:s, s:b, s:s}]}", "Image",
                  "sha256:abc", "Config", config, "HostConfig", host, "Mounts", "Type", "bind", "Source",
                  "/s/w", "Destination", "/workspace", "RW", 1, "Propagation", "rprivate", "Type", "bind",
                  "Source", "/r/t", "Destination", "/broker", "RW", 0, "Propagation", "rprivate");
    cr_assert_not_null(p.inspect);
    return p;
}

static void drop(struct pair *p)
{
    json_decref(p->body);
    json_decref(p->inspect);
    json_decref(p->env);
}

static void names_field(const struct pair *p, const char *field)
{
    char text[200];
    struct err err = {0};

    snprintf(text, sizeof text, ": %s differs", field);
    cr_expect_lt(verify_container(p->body, p->env, p->inspect, &err), 0, "%s must be noticed", field);
    cr_expect_eq(err.code, ERR_ENGINE);
    cr_expect(strstr(err.text, text), "\"%s\" should name %s", err.text, field);
}

Test(verify, what_was_asked_passes)
{
    struct pair p = make();
    struct err err;

    cr_expect_eq(verify_container(p.body, p.env, p.inspect, &err), 0, "%s", err.text);
    drop(&p);
}

/* Each field of the body, changed and left out; a list of names would forget the next one. */
Test(verify, every_field_of_the_body_is_compared)
{
    static const char *const where[] = {"Config", "HostConfig"};
    unsigned seen = 0;

    for (unsigned part = 0; part < 2; part++) {
        struct pair keys = make();
        const json_t *want = part == 0 ? keys.body : json_object_get(keys.body, "HostConfig");
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)(uintptr_t)want, key, value) {
            char field[100];
            if (strcmp(key, "HostConfig") == 0 || strcmp(key, "Image") == 0 || strcmp(key, "Mounts") == 0 ||
                strcmp(key, "Labels") == 0)
                continue;
            struct pair p = make();
            json_object_set_new(json_object_get(p.inspect, where[part]), key, json_string("other"));
            snprintf(field, sizeof field, "%s.%s", where[part], key);
            names_field(&p, field);
            seen++;
            drop(&p);
        }
        drop(&keys);
    }
    cr_expect_eq(seen, 12 + 22, "%u fields were compared", seen);
}

Test(verify, labels_and_image)
{
    struct pair p = make();

    json_object_set_new(json_object_get(json_object_get(p.inspect, "Config"), "Labels"), "io.cloister.slot",
                        json_string("x"));
    names_field(&p, "Config.Labels.io.cloister.slot");
    drop(&p);
    p = make();
    json_object_set_new(p.inspect, "Image", json_string("sha256:def"));
    names_field(&p, "Image");
    drop(&p);
}

Test(verify, what_widens_the_seal_is_noticed)
{
    static const char *const host[] = {
        "Binds",      "VolumesFrom",  "Devices",      "DeviceRequests", "DeviceCgroupRules",
        "GroupAdd",   "Sysctls",      "PortBindings", "Links",          "ExtraHosts",
        "UsernsMode", "CgroupParent", "CapAdd"};
    char field[64];

    for (size_t i = 0; i < ARRAY_LEN(host); i++) {
        struct pair p = make();
        json_object_set_new(json_object_get(p.inspect, "HostConfig"), host[i], json_pack("[s]", "x"));
        snprintf(field, sizeof field, "HostConfig.%s", host[i]);
        names_field(&p, field);
        drop(&p);
    }
    struct pair p = make();
    json_object_set_new(json_object_get(p.inspect, "Config"), "Volumes", json_pack("{s:{}}", "/data"));
    names_field(&p, "Config.Volumes");
    drop(&p);
}

Test(verify, masks)
{
    static const char *const lists[] = {"MaskedPaths", "ReadonlyPaths"};
    char field[64];

    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        struct pair p = make();
        json_array_remove(json_object_get(json_object_get(p.inspect, "HostConfig"), lists[i]), 0);
        snprintf(field, sizeof field, "HostConfig.%s", lists[i]);
        names_field(&p, field);
        json_object_del(json_object_get(p.inspect, "HostConfig"), lists[i]);
        names_field(&p, field);
        drop(&p);
    }
}

Test(verify, environment)
{
    static const char *const bad[] = {"SECRET=1", "PATH=/evil", "HOME=/root", "HOME=/tmp/home"};

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct pair p = make();
        json_array_append_new(json_object_get(json_object_get(p.inspect, "Config"), "Env"),
                              json_string(bad[i]));
        names_field(&p, "Config.Env");
        drop(&p);
    }
    struct pair p = make();
    json_array_remove(json_object_get(json_object_get(p.inspect, "Config"), "Env"), 0);
    names_field(&p, "Config.Env");
    drop(&p);
}

Test(verify, mounts)
{
    static const struct {
        const char *key;
        json_t *(*value)(void);
    } changes[] = {{"Type", json_null},
                   {"Source", json_null},
                   {"Destination", json_null},
                   {"RW", json_false},
                   {"Propagation", json_null}};

    for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
        struct pair p = make();
        json_object_set_new(json_array_get(json_object_get(p.inspect, "Mounts"), 0), changes[i].key,
                            changes[i].value());
        names_field(&p, "Mounts");
        drop(&p);
    }
    struct pair p = make();
    json_object_set_new(json_array_get(json_object_get(p.inspect, "Mounts"), 1), "RW", json_true());
    names_field(&p, "Mounts");
    json_array_append_new(json_object_get(p.inspect, "Mounts"), json_object());
    names_field(&p, "Mounts");
    json_array_clear(json_object_get(p.inspect, "Mounts"));
    names_field(&p, "Mounts");
    drop(&p);
}

Test(verify, nothing_is_not_everything)
{
    struct pair p = make();
    struct err err;

    json_t *empty = json_object();
    cr_expect_lt(verify_container(p.body, p.env, empty, &err), 0);
    json_decref(empty);
    drop(&p);
}

Test(verify, images)
{
    static const struct {
        const char *text;
        bool fine;
    } images[] = {
        {"{\"Id\":\"sha256:a\",\"Config\":{\"Entrypoint\":[\"/w\"],\"Volumes\":null}}", true},
        {"{\"Id\":\"sha256:a\",\"Config\":{\"Cmd\":[\"/w\"],\"Volumes\":{}}}", true},
        {"{\"Id\":\"sha256:a\",\"Config\":{\"Entrypoint\":[\"/w\"],\"Volumes\":{\"/data\":{}}}}", false},
        {"{\"Id\":\"sha256:a\",\"Config\":{\"Entrypoint\":null,\"Cmd\":[]}}", false},
        {"{\"Config\":{\"Entrypoint\":[\"/w\"]}}", false},
        {"{}", false},
    };
    struct err err;

    for (size_t i = 0; i < ARRAY_LEN(images); i++) {
        json_t *image = NULL;
        cr_assert_eq(json_parse(images[i].text, strlen(images[i].text), &image, &err), 0);
        cr_expect_eq(verify_image(image, &err) == 0, images[i].fine, "image %zu", i);
        if (!images[i].fine)
            cr_expect_eq(err.code, ERR_IMAGE);
        json_decref(image);
    }
}
