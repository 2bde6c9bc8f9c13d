/* The seal from inside, and what sandbox_prepare and the sweep do; on the real engine. */
#include "world.h"

#include "base/fs.h"
#include "base/id.h"
#include "sandbox/seccomp.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static json_t *data_of(struct world *w, const char *mode, struct box_result *r)
{
    json_t *reply = NULL;
    struct err err;

    world_open(w, mode);
    world_prepare(w);
    world_run(w, "{\"text\":\"\"}\n", 12, 60000, 1000, r);
    cr_assert_eq(r->end, BOX_REPLY);
    cr_assert_eq(json_parse(r->out.data, r->out.len, &reply, &err), 0, "%s", err.text);
    json_t *data = json_incref(json_object_get(reply, "data"));
    cr_assert(json_is_object(data));
    json_decref(reply);
    return data;
}

static void done(struct world *w, struct box_result *r, json_t *data)
{
    json_decref(data);
    box_result_free(r);
    world_close(w);
}

static void is_text(const json_t *object, const char *key, const char *want)
{
    const char *have = json_str(object, key);

    cr_expect(have && strcmp(have, want) == 0, "%s is \"%s\", not \"%s\"", key, have ? have : "absent", want);
}

/* The options of a mount hold all of these words. */
static void mounted(const json_t *mounts, const char *point, const char *const *words)
{
    char start[64], line[1024];
    size_t i;
    json_t *item;

    snprintf(start, sizeof start, " %s ", point);
    json_array_foreach(mounts, i, item) {
        const char *at = strstr(json_string_value(item), start);
        if (!at)
            continue;
        snprintf(line, sizeof line, ",%s,", at + strlen(start));
        for (char *p = line; (p = strchr(p, ' '));)
            *p = ',';
        for (; *words; words++) {
            char word[64];
            snprintf(word, sizeof word, ",%s,", *words);
            cr_expect(strstr(line, word), "%s lacks %s: %s", point, *words, line);
        }
        return;
    }
    cr_expect(false, "%s is not mounted", point);
}

Test(seal, looks_right_from_inside)
{
    struct world w;
    struct box_result r;
    json_t *d = data_of(&w, "inspect-self", &r);
    const json_t *status = json_object_get(d, "status"), *write = json_object_get(d, "write");
    char *text;

    text = json_dumps(json_object_get(d, "interfaces"), JSON_COMPACT);
    cr_expect_str_eq(text, "[\"lo\"]");
    free(text);
    cr_expect_eq(json_array_size(json_object_get(d, "routes")), 0);
    is_text(status, "CapInh", "0000000000000000");
    is_text(status, "CapPrm", "0000000000000000");
    is_text(status, "CapEff", "0000000000000000");
    is_text(status, "CapBnd", "0000000000000000");
    is_text(status, "CapAmb", "0000000000000000");
    is_text(status, "NoNewPrivs", "1");
    is_text(status, "Seccomp", "2");
    is_text(write, "/", "Read-only file system");
    is_text(write, "/etc", "Read-only file system");
    is_text(write, "/broker", "Read-only file system");
    is_text(write, "/workspace", "writable");
    is_text(write, "/tmp", "writable");
    is_text(write, "/dev", "Permission denied");
    is_text(write, "/dev/shm", "No such file or directory");
    is_text(write, "/dev/mqueue", "Too many open files");
    is_text(d, "shm", "absent");
    is_text(d, "host", "cloister");
    text = json_dumps(json_object_get(d, "env"), JSON_COMPACT);
    cr_expect_str_eq(text, "[\"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\","
                           "\"HOSTNAME=cloister\",\"HOME=/tmp/home\"]");
    free(text);
    text = json_dumps(json_object_get(d, "core"), JSON_COMPACT);
    cr_expect_str_eq(text, "[0,0]");
    free(text);
    text = json_dumps(json_object_get(d, "nofile"), JSON_COMPACT);
    cr_expect_str_eq(text, "[256,256]");
    free(text);
    const json_t *mounts = json_object_get(d, "mounts");
    mounted(mounts, "/", (const char *const[]){"ro", NULL});
    mounted(mounts, "/broker", (const char *const[]){"ro", NULL});
    mounted(mounts, "/workspace", (const char *const[]){"rw", NULL});
    mounted(mounts, "/tmp", (const char *const[]){"rw", "noexec", "nosuid", "nodev", "size=65536k", NULL});
    done(&w, &r, d);
}

/* The image's own environment stays, its HOME does not. */
Test(seal, an_image_with_an_environment)
{
    struct world w;
    struct box_result r;
    json_t *d = data_of(&w, "loud-env", &r);

    char *text = json_dumps(json_object_get(d, "env"), JSON_COMPACT);
    cr_expect(strstr(text, "\"HOME=/tmp/home\"") && strstr(text, "\"PATH=/bin\"") &&
                  strstr(text, "\"LANG=C.UTF-8\""),
              "%s", text);
    cr_expect_null(strstr(text, "/root"), "%s", text);
    free(text);
    done(&w, &r, d);
}

#ifdef __x86_64__
/* Newer than the C library's header. */
static const struct {
    const char *name;
    long nr;
} newer[] = {{"cachestat", 451},  {"fchmodat2", 452},  {"map_shadow_stack", 453},
             {"futex_wake", 454}, {"futex_wait", 455}, {"futex_requeue", 456},
             {"mseal", 462}};

static bool allowed_by_name(const json_t *profile, const char *name)
{
    const json_t *names = json_object_get(json_array_get(json_object_get(profile, "syscalls"), 0), "names");
    size_t i;
    json_t *item;

    json_array_foreach(names, i, item)
        if (strcmp(json_string_value(item), name) == 0)
            return true;
    return false;
}

/* number → allowed whatever its arguments are */
static void numbers(const json_t *profile, bool allowed[601])
{
    char line[256], name[128];
    long nr;
    unsigned known = 0;

    FILE *file = fopen("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "re");
    cr_assert(file, "linux-libc-dev is needed");
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "#define __NR_%127s %ld", name, &nr) == 2 && nr >= 0 && nr <= 600) {
            known++;
            allowed[nr] = allowed_by_name(profile, name);
        }
    fclose(file);
    cr_assert_gt(known, 330);
    for (size_t i = 0; i < ARRAY_LEN(newer); i++)
        allowed[newer[i].nr] = allowed_by_name(profile, newer[i].name);
}

Test(seal, every_system_call_meets_the_profile)
{
    struct world w;
    struct box_result r;
    struct err err;
    bool allowed[601] = {false};
    json_t *profile = NULL, *d = data_of(&w, "seccomp-probe", &r);
    unsigned refused = 0, passed = 0;

    cr_assert_eq(seccomp_profile(SECCOMP_NATIVE, &profile, &err), 0);
    numbers(profile, allowed);
    for (int nr = 0; nr <= 600; nr++) {
        char key[16];
        snprintf(key, sizeof key, "%d", nr);
        const char *said = json_str(json_object_get(d, "calls"), key);
        cr_assert(said, "call %d", nr);
        bool eperm = strcmp(said, "errno 1") == 0, enosys = strcmp(said, "errno 38") == 0;
        if (nr == 335 || nr == 336) /* uretprobe, uprobe: the kernel takes them before any filter */
            continue;
        if (allowed[nr])
            cr_expect(!eperm || nr == 116, "call %d is allowed, but answers %s", nr, said); /* setgroups */
        else
            cr_expect(eperm || enosys, "call %d is not allowed, but answers %s", nr, said);
        *(allowed[nr] ? &passed : &refused) += 1;
    }
    cr_expect_gt(passed, 230, "%u passed", passed);
    cr_expect_gt(refused, 250, "%u refused", refused);
    json_decref(profile);
    done(&w, &r, d);
}

Test(seal, arguments_are_looked_at)
{
    struct world w;
    struct box_result r;
    json_t *all = data_of(&w, "seccomp-probe", &r), *d = json_object_get(all, "arguments");
    static const char *const eperm[] = {"socket inet",
                                        "socket inet6",
                                        "socket netlink",
                                        "socket packet",
                                        "socket vsock",
                                        "socket alg",
                                        "clone newuser",
                                        "clone newnet",
                                        "clone newns",
                                        "clone newcgroup",
                                        "unshare user",
                                        "prctl seccomp",
                                        "prctl mm",
                                        "prctl ptracer",
                                        "ioctl sti",
                                        "ioctl sti alias",
                                        "ioctl linux",
                                        "personality linux32",
                                        "personality no randomize"};

    for (size_t i = 0; i < ARRAY_LEN(eperm); i++)
        is_text(d, eperm[i], "errno 1");
    is_text(d, "socket unix", "ok");
    is_text(d, "clone plain", "ok");
    is_text(d, "prctl name", "ok");
    is_text(d, "ioctl isatty", "errno 25");
    is_text(d, "personality query", "ok");
    is_text(d, "clone3", "errno 38");
    is_text(d, "i386 getpid", "signal 31");
    is_text(d, "x32 getpid", "signal 31");
    is_text(d, "x32 unshare", "signal 31");
    done(&w, &r, all);
}
#endif

static enum err_code prepare_fails(const char *mode)
{
    struct world w;
    struct err err;

    world_open(&w, mode);
    cr_expect_lt(sandbox_prepare(w.sandbox, w.broker, w.work, &err), 0);
    world_close(&w);
    return err.code;
}

Test(prepare, refuses_images)
{
    cr_expect_eq(prepare_fails("no-such-mode"), ERR_IMAGE);
    cr_expect_eq(prepare_fails("volumes"), ERR_IMAGE);
    cr_expect_eq(prepare_fails("nothing"), ERR_IMAGE);
}

Test(prepare, leaves_no_probe)
{
    struct world w;

    world_open(&w, "echo");
    world_prepare(&w);
    world_prepare(&w);
    world_close(&w); /* asserts that the sweep finds nothing */
}

Test(prepare, refuses_root_and_bad_figures_without_any_engine)
{
    struct sandbox *s = NULL;
    struct err err;
    struct sandbox_config c = {
        "/nowhere/engine.sock", "worker:local", "home", "b1", 0, 1000, 512, 1.0, 64, 256, 64, 0};

    cr_expect_lt(sandbox_new(&c, &s, &err), 0);
    cr_expect_eq(err.code, ERR_CONFIG);
    c.uid = 1000;
    c.gid = 0;
    cr_expect_lt(sandbox_new(&c, &s, &err), 0);
    c.gid = 1000;
    c.image = "-x";
    cr_expect_lt(sandbox_new(&c, &s, &err), 0);
    c.image = "worker:local";
    c.engine_socket = "relative.sock";
    cr_expect_lt(sandbox_new(&c, &s, &err), 0);
    c.engine_socket = "/nowhere/engine.sock";
    cr_assert_eq(sandbox_new(&c, &s, &err), 0, "%s", err.text);
    cr_expect_lt(sandbox_ping(s, &err), 0);
    cr_expect_eq(err.code, ERR_ENGINE_AWAY);
    cr_expect_lt(sandbox_prepare(s, "/a", "/b", &err), 0);
    cr_expect_eq(err.code, ERR_ENGINE_AWAY);
    sandbox_free(s);
}

static bool keep_first(const char *slot, const char *boot, void *arg)
{
    cr_expect_str_eq(boot, "boot-1");
    return strcmp(slot, arg) == 0;
}

Test(sweep, removes_what_is_not_kept_and_no_other_installation)
{
    struct world w, other;
    struct box *box[3] = {NULL}, *foreign = NULL;
    char slot[4][ID_HEX_128];
    struct err err;
    struct sandbox_swept swept;

    world_open(&w, "echo");
    world_prepare(&w);
    world_open(&other, "echo");
    world_prepare(&other);
    for (int i = 0; i < 4; i++)
        id_hex(slot[i], 16);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(box_create(w.sandbox, slot[i], w.broker, w.work, NULL, NULL, &box[i], &err), 0, "%s",
                     err.text);
    cr_assert_eq(box_create(other.sandbox, slot[3], other.broker, other.work, NULL, NULL, &foreign, &err), 0,
                 "%s", err.text);
    cr_assert_eq(box_start(box[1], NULL, &err), 0, "%s", err.text);
    cr_expect_eq(sandbox_sweep(w.sandbox, keep_first, slot[0], &swept, &err), 0, "%s", err.text);
    cr_expect_eq(swept.removed, 2);
    cr_expect_eq(swept.left, 0, "%s", swept.why.text);
    cr_expect_eq(box_start(box[0], NULL, &err), 0, "it was kept: %s", err.text);
    cr_expect_eq(box_start(foreign, NULL, &err), 0, "it is another's: %s", err.text);
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(box_remove(box[i], &err), 0, "%s", err.text);
        box_free(box[i]);
    }
    cr_expect_eq(box_remove(foreign, &err), 0, "%s", err.text);
    box_free(foreign);
    world_close(&w);
    world_close(&other);
}
