/* The specification of mission.md section 2: each rule with its own error, each field as asked. */
#include "sandbox/seccomp.h"
#include "sandbox/spec.h"
#include "sandbox/verify.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#define SLOT "0123456789abcdef0123456789abcdef"

static struct box_spec good(void)
{
    return (struct box_spec){.name = "cloister-" SLOT,
                             .image_id = "sha256:abc",
                             .broker_dir = "/run/cloister/t1",
                             .workspace_dir = "/srv/cloister/w1",
                             .installation = "home",
                             .boot = "b1",
                             .slot = SLOT,
                             .uid = 1000,
                             .gid = 1001,
                             .memory_mb = 512,
                             .cpus = 1.0,
                             .pids = 64,
                             .nofile = 256,
                             .tmp_mb = 64};
}

static void refused(const struct box_spec *spec, const char *rule)
{
    json_t *body = NULL;
    struct err err;

    cr_expect_lt(spec_body(spec, "{}", &body, &err), 0, "must be refused: %s", rule);
    cr_expect_eq(err.code, ERR_CONFIG);
    cr_expect(strstr(err.text, rule), "\"%s\" should say \"%s\"", err.text, rule);
    cr_expect_null(body);
}

#define REFUSED(field, value, rule)                                                                          \
    do {                                                                                                     \
        struct box_spec s_ = good();                                                                         \
        s_.field = value;                                                                                    \
        refused(&s_, rule);                                                                                  \
    } while (0)

Test(spec, every_rule_has_its_error)
{
    REFUSED(uid, 0, "uid 0");
    REFUSED(gid, 0, "gid 0");
    REFUSED(uid, (uid_t)-1, "uid");
    REFUSED(memory_mb, 63, "memory");
    REFUSED(memory_mb, 4000000000u, "memory");
    REFUSED(cpus, 0.0, "CPUs");
    REFUSED(cpus, -1.0, "CPUs");
    REFUSED(cpus, NAN, "CPUs");
    REFUSED(cpus, INFINITY, "CPUs");
    REFUSED(pids, 7, "pids");
    REFUSED(nofile, 1, "nofile");
    REFUSED(tmp_mb, 0, "/tmp");
    REFUSED(slot, "0123", "slot");
    REFUSED(slot, "0123456789ABCDEF0123456789ABCDEF", "slot");
    REFUSED(name, "cloister-" SLOT "0", "name");
    REFUSED(name, "other-" SLOT, "name");
    REFUSED(installation, "", "installation");
    REFUSED(installation, "a\nb", "installation");
    REFUSED(boot, "", "boot");
}

Test(spec, mount_sources)
{
    REFUSED(broker_dir, "run/t1", "absolute");
    REFUSED(broker_dir, "", "absolute");
    REFUSED(broker_dir, "/", "must not be /");
    REFUSED(workspace_dir, "/", "must not be /");
    REFUSED(workspace_dir, "srv/w1", "absolute");
    REFUSED(workspace_dir, "/srv/a,b", "comma");
    REFUSED(workspace_dir, "/srv/a\nb", "line break");
    REFUSED(broker_dir, "/run/a\rb", "line break");
    REFUSED(broker_dir, "/run/../etc", "canonical");
    REFUSED(broker_dir, "/run/./t", "canonical");
    REFUSED(broker_dir, "/run//t", "canonical");
    REFUSED(broker_dir, "/run/t/", "canonical");
    REFUSED(broker_dir, "/srv/\xff", "UTF-8");
    REFUSED(workspace_dir, "/run/cloister/t1", "contain one another");
    REFUSED(workspace_dir, "/run/cloister/t1/inner", "contain one another");
    REFUSED(workspace_dir, "/run/cloister", "contain one another");
}

Test(spec, a_sibling_with_the_same_start_is_fine)
{
    struct box_spec s = good();
    struct err err;

    s.workspace_dir = "/run/cloister/t10";
    cr_expect_eq(spec_check(&s, &err), 0, "%s", err.text);
    s.workspace_dir = "/run/cloister/..t1";
    cr_expect_eq(spec_check(&s, &err), 0, "%s", err.text);
}

Test(spec, images)
{
    static const char *const bad[] = {"", "-x", "a b", "a\tb", "a\n", " a", "\xff", "a\x01"};
    struct err err;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        cr_expect_lt(spec_check_image(bad[i], &err), 0, "image %zu", i);
        cr_expect_eq(err.code, ERR_CONFIG);
    }
    cr_expect_eq(spec_check_image("registry:5000/a/worker:1.2@sha256:0", &err), 0);
}

Test(spec, figures_at_their_edges_pass)
{
    struct box_spec s = good();
    struct err err;

    s.memory_mb = 64;
    s.pids = 8;
    s.cpus = 0.01;
    s.tmp_mb = 1;
    s.uid = s.gid = 1;
    cr_expect_eq(spec_check(&s, &err), 0, "%s", err.text);
}

/* Word for word: whatever changes here changes the seal. */
static const char golden[] =
    "{\"Image\":\"sha256:abc\",\"Hostname\":\"cloister\",\"Domainname\":\"\",\"Env\":[\"HOME=/tmp/home\"],"
    "\"User\":\"1000:1001\",\"AttachStdin\":true,\"AttachStdout\":true,\"AttachStderr\":true,\"OpenStdin\":"
    "true,"
    "\"StdinOnce\":true,\"Tty\":false,\"NetworkDisabled\":true,\"Healthcheck\":{\"Test\":[\"NONE\"]},"
    "\"Labels\":{\"io.cloister.installation\":\"home\",\"io.cloister.boot\":\"b1\",\"io.cloister.slot\":"
    "\"" SLOT "\"},\"HostConfig\":{\"NetworkMode\":\"none\",\"ReadonlyRootfs\":true,\"CapDrop\":[\"ALL\"],"
    "\"CapAdd\":[],\"SecurityOpt\":[\"no-new-privileges\",\"seccomp=PROFILE\"],\"Privileged\":false,"
    "\"PublishAllPorts\":false,\"Init\":false,\"IpcMode\":\"none\",\"CgroupnsMode\":\"private\",\"PidMode\":"
    "\"\","
    "\"UTSMode\":\"\",\"Memory\":536870912,\"MemorySwap\":536870912,\"NanoCpus\":1000000000,\"PidsLimit\":64,"
    "\"Ulimits\":[{\"Name\":\"nofile\",\"Soft\":256,\"Hard\":256},{\"Name\":\"core\",\"Soft\":0,\"Hard\":0},"
    "{\"Name\":\"msgqueue\",\"Soft\":0,\"Hard\":0}],\"OomKillDisable\":false,\"LogConfig\":{\"Type\":"
    "\"none\","
    "\"Config\":{}},\"RestartPolicy\":{\"Name\":\"no\",\"MaximumRetryCount\":0},\"AutoRemove\":false,"
    "\"Tmpfs\":"
    "{\"/tmp\":\"rw,noexec,nosuid,nodev,size=64m,mode=1777\"},\"Mounts\":[{\"Type\":\"bind\",\"Source\":"
    "\"/run/cloister/t1\",\"Target\":\"/"
    "broker\",\"ReadOnly\":true,\"BindOptions\":{\"Propagation\":\"rprivate\"}},"
    "{\"Type\":\"bind\",\"Source\":\"/srv/cloister/w1\",\"Target\":\"/"
    "workspace\",\"ReadOnly\":false,\"BindOptions\":"
    "{\"Propagation\":\"rprivate\"}}]}}";

Test(spec, the_body_is_word_for_word)
{
    struct box_spec s = good();
    json_t *body = NULL;
    char *text = NULL;
    struct err err;

    cr_assert_eq(spec_body(&s, "PROFILE", &body, &err), 0, "%s", err.text);
    cr_assert_eq(json_text(body, &text, &err), 0);
    cr_expect_str_eq(text, golden);
    free(text);
    json_decref(body);
}

static bool names(const json_t *rule, const char *name)
{
    size_t i;
    json_t *item;

    json_array_foreach(json_object_get(rule, "names"), i, item)
        if (strcmp(json_string_value(item), name) == 0)
            return true;
    return false;
}

Test(seccomp, allows_by_name_and_refuses_by_default)
{
    static const char *const never[] = {"inotify_init",
                                        "inotify_init1",
                                        "inotify_add_watch",
                                        "fanotify_init",
                                        "mq_open",
                                        "keyctl",
                                        "add_key",
                                        "request_key",
                                        "userfaultfd",
                                        "io_uring_setup",
                                        "io_uring_enter",
                                        "bpf",
                                        "ptrace",
                                        "perf_event_open",
                                        "mount",
                                        "umount2",
                                        "pivot_root",
                                        "open_tree",
                                        "move_mount",
                                        "fsopen",
                                        "fsmount",
                                        "fsconfig",
                                        "fspick",
                                        "mount_setattr",
                                        "unshare",
                                        "setns",
                                        "kcmp",
                                        "process_vm_readv",
                                        "process_vm_writev",
                                        "process_madvise",
                                        "name_to_handle_at",
                                        "open_by_handle_at",
                                        "init_module",
                                        "finit_module",
                                        "delete_module",
                                        "kexec_load",
                                        "kexec_file_load",
                                        "reboot",
                                        "swapon",
                                        "chroot",
                                        "memfd_secret",
                                        "shmget",
                                        "semget",
                                        "msgget",
                                        "io_setup",
                                        "iopl",
                                        "ioperm",
                                        "modify_ldt",
                                        "syslog",
                                        "acct",
                                        "quotactl",
                                        "settimeofday",
                                        "clock_settime",
                                        "adjtimex",
                                        "seccomp",
                                        "pidfd_getfd",
                                        "vmsplice",
                                        "sync",
                                        "syncfs",
                                        "lookup_dcookie"};
    json_t *profile = NULL, *rule;
    struct err err;
    size_t i;

    cr_assert_eq(seccomp_profile(SECCOMP_X86_64, &profile, &err), 0);
    cr_expect_str_eq(json_str(profile, "defaultAction"), "SCMP_ACT_ERRNO");
    const json_t *arch = json_object_get(profile, "architectures");
    cr_expect_eq(json_array_size(arch), 1, "native only");
    cr_expect_str_eq(json_string_value(json_array_get(arch, 0)), "SCMP_ARCH_X86_64");
    json_array_foreach(json_object_get(profile, "syscalls"), i, rule) {
        for (size_t n = 0; n < ARRAY_LEN(never); n++)
            cr_expect_not(names(rule, never[n]), "%s", never[n]);
        bool limited = names(rule, "socket") || names(rule, "socketpair") || names(rule, "clone") ||
                       names(rule, "prctl") || names(rule, "ioctl") || names(rule, "personality");
        cr_expect_eq(limited, json_array_size(json_object_get(rule, "args")) == 1);
        if (names(rule, "clone3")) {
            cr_expect_str_eq(json_str(rule, "action"), "SCMP_ACT_ERRNO");
            cr_expect_eq(json_integer_value(json_object_get(rule, "errnoRet")), 38);
        } else {
            cr_expect_str_eq(json_str(rule, "action"), "SCMP_ACT_ALLOW");
        }
    }
    json_decref(profile);
    cr_assert_eq(seccomp_profile(SECCOMP_AARCH64, &profile, &err), 0);
    arch = json_object_get(profile, "architectures");
    cr_expect_str_eq(json_string_value(json_array_get(arch, 0)), "SCMP_ARCH_AARCH64");
    json_decref(profile);
}

Test(seccomp, no_terminal_injection_however_it_is_spelled)
{
    json_t *profile = NULL, *rule;
    struct err err;
    size_t i;

    cr_assert_eq(seccomp_profile(SECCOMP_NATIVE, &profile, &err), 0);
    json_array_foreach(json_object_get(profile, "syscalls"), i, rule) {
        const json_t *arg = json_array_get(json_object_get(rule, "args"), 0);
        if (!names(rule, "ioctl"))
            continue;
        cr_expect_str_eq(json_str(arg, "op"), "SCMP_CMP_MASKED_EQ");
        cr_expect_eq(json_integer_value(json_object_get(arg, "index")), 1);
        cr_expect_eq(json_integer_value(json_object_get(arg, "value")), 0xffffffff);
        cr_expect_neq(json_integer_value(json_object_get(arg, "valueTwo")), 0x5412);
        cr_expect_neq(json_integer_value(json_object_get(arg, "valueTwo")), 0x541c);
    }
    json_decref(profile);
}
