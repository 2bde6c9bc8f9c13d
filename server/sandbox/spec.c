#include "sandbox/spec.h"

#include "base/fs.h"
#include "base/utf8.h"

#include <math.h>
#include <string.h>

#define MIB             (1024LL * 1024)
#define MEMORY_MAX_MB   (1024 * 1024)
#define CPUS_MAX        1024.0
#define CPUS_MIN        0.01 /* what the engine can express */
#define PIDS_MAX        4194304
#define NOFILE_MIN      16
#define NOFILE_MAX      1048576
#define IMAGE_MAX       512
#define SOURCE_MAX      4096
#define BOX_HOST_NAME   "cloister"
#define BOX_TMP_OPTIONS "rw,noexec,nosuid,nodev,size=%um,mode=1777"

bool spec_is_slot(const char *slot)
{
    return strlen(slot) == BOX_SLOT_HEX && strspn(slot, "0123456789abcdef") == BOX_SLOT_HEX;
}

int spec_check_image(const char *image, struct err *err)
{
    size_t len = strlen(image);

    if (len == 0)
        return err_set(err, ERR_CONFIG, "the image is empty");
    if (image[0] == '-')
        return err_set(err, ERR_CONFIG, "the image starts with '-'");
    if (strpbrk(image, " \t\r\n\v\f"))
        return err_set(err, ERR_CONFIG, "the image contains white space");
    if (len > IMAGE_MAX || !utf8_valid(image, len) || utf8_has_control(image, len))
        return err_set(err, ERR_CONFIG, "the image is longer than %d bytes or not printable", IMAGE_MAX);
    return 0;
}

static int check_label(const char *what, const char *value, struct err *err)
{
    size_t len = strlen(value);

    if (len == 0 || len > BOX_LABEL_MAX || !utf8_valid(value, len) || utf8_has_control(value, len))
        return err_set(err, ERR_CONFIG, "the %s must be 1 to %d printable characters", what, BOX_LABEL_MAX);
    return 0;
}

static int check_names(const struct box_spec *s, struct err *err)
{
    if (!spec_is_slot(s->slot))
        return err_set(err, ERR_CONFIG, "the slot must be %d lower-case hex digits", BOX_SLOT_HEX);
    if (strncmp(s->name, BOX_NAME_PREFIX, strlen(BOX_NAME_PREFIX)) != 0 ||
        strcmp(s->name + strlen(BOX_NAME_PREFIX), s->slot) != 0)
        return err_set(err, ERR_CONFIG, "the container's name must be " BOX_NAME_PREFIX " and the slot");
    if (check_label("installation", s->installation, err) < 0 || check_label("boot", s->boot, err) < 0)
        return -1;
    return spec_check_image(s->image_id, err);
}

static int check_figures(const struct box_spec *s, struct err *err)
{
    if (s->uid == 0 || s->uid == (uid_t)-1)
        return err_set(err, ERR_CONFIG, "a worker never runs as uid 0");
    if (s->gid == 0 || s->gid == (gid_t)-1)
        return err_set(err, ERR_CONFIG, "a worker never runs as gid 0");
    if (s->memory_mb < BOX_MEMORY_MIN || s->memory_mb > MEMORY_MAX_MB)
        return err_set(err, ERR_CONFIG, "memory must be %d to %d MiB", BOX_MEMORY_MIN, MEMORY_MAX_MB);
    if (!isfinite(s->cpus) || s->cpus < CPUS_MIN || s->cpus > CPUS_MAX)
        return err_set(err, ERR_CONFIG, "CPUs must be %.2f to %.0f", CPUS_MIN, CPUS_MAX);
    if (s->pids < BOX_PIDS_MIN || s->pids > PIDS_MAX)
        return err_set(err, ERR_CONFIG, "pids must be %d to %d", BOX_PIDS_MIN, PIDS_MAX);
    if (s->nofile < NOFILE_MIN || s->nofile > NOFILE_MAX)
        return err_set(err, ERR_CONFIG, "nofile must be %d to %d", NOFILE_MIN, NOFILE_MAX);
    if (s->tmp_mb < 1 || s->tmp_mb > MEMORY_MAX_MB)
        return err_set(err, ERR_CONFIG, "the size of /tmp must be 1 to %d MiB", MEMORY_MAX_MB);
    return 0;
}

/* A path that realpath(3) could have returned: no ".", "..", "//" and no slash at its end. */
static bool is_canonical(const char *path)
{
    for (const char *p = path; *p; p++) {
        if (*p != '/')
            continue;
        size_t len = strcspn(p + 1, "/");
        if (len == 0 || (len == 1 && p[1] == '.') || (len == 2 && p[1] == '.' && p[2] == '.'))
            return false;
    }
    return true;
}

static int check_source(const char *what, const char *path, struct err *err)
{
    size_t len = strlen(path);

    if (path[0] != '/')
        return err_set(err, ERR_CONFIG, "the %s folder must be an absolute path", what);
    if (strcmp(path, "/") == 0)
        return err_set(err, ERR_CONFIG, "the %s folder must not be /", what);
    if (strpbrk(path, ",\n\r"))
        return err_set(err, ERR_CONFIG, "the %s folder's path contains a comma or a line break", what);
    if (!is_canonical(path))
        return err_set(err, ERR_CONFIG, "the %s folder's path is not canonical", what);
    if (len > SOURCE_MAX || !utf8_valid(path, len))
        return err_set(err, ERR_CONFIG, "the %s folder's path is too long or not UTF-8", what);
    return 0;
}

int spec_check(const struct box_spec *s, struct err *err)
{
    if (check_names(s, err) < 0 || check_figures(s, err) < 0 ||
        check_source("broker", s->broker_dir, err) < 0 ||
        check_source("workspace", s->workspace_dir, err) < 0)
        return -1;
    if (fs_contains(s->broker_dir, s->workspace_dir) || fs_contains(s->workspace_dir, s->broker_dir))
        return err_set(err, ERR_CONFIG, "the broker and the workspace folder contain one another");
    return 0;
}

/* No core dumps; and no message queues, which an open(2) below /dev/mqueue makes as well as mq_open does. */
static json_t *ulimit(const char *name, unsigned value)
{
    return json_pack("{s:s, s:I, s:I}", "Name", name, "Soft", (json_int_t)value, "Hard", (json_int_t)value);
}

static json_t *bind_mount(const char *source, const char *target, bool read_only)
{
    return json_pack("{s:s, s:s, s:s, s:b, s:{s:s}}", "Type", "bind", "Source", source, "Target", target,
                     "ReadOnly", read_only, "BindOptions", "Propagation", "rprivate");
}

static json_t *security_opt(const char *seccomp)
{
    return json_pack("[s, s+]", "no-new-privileges", "seccomp=", seccomp);
}

/* NULL when out of memory; json_pack takes over every part, also on failure. */
static json_t *host_config(const struct box_spec *s, const char *seccomp)
{
    char tmp[96];

    snprintf(tmp, sizeof tmp, BOX_TMP_OPTIONS, s->tmp_mb);
    json_t *host =
        json_pack("{s:s, s:b, s:[s], s:[], s:o, s:b, s:b, s:b, s:s, s:s, s:s, s:s}", /* seal */
                  "NetworkMode", "none", "ReadonlyRootfs", 1, "CapDrop", "ALL", "CapAdd", "SecurityOpt",
                  security_opt(seccomp), "Privileged", 0, "PublishAllPorts", 0, "Init", 0, "IpcMode", "none",
                  "CgroupnsMode", "private", "PidMode", "", "UTSMode", "");
    json_t *limits =
        json_pack("{s:I, s:I, s:I, s:I, s:[o, o, o], s:b}", /* figures */
                  "Memory", (json_int_t)(s->memory_mb * MIB), "MemorySwap", (json_int_t)(s->memory_mb * MIB),
                  "NanoCpus", (json_int_t)(s->cpus * 1e9 + 0.5), "PidsLimit", (json_int_t)s->pids, "Ulimits",
                  ulimit("nofile", s->nofile), ulimit("core", 0), ulimit("msgqueue", 0), "OomKillDisable", 0);
    json_t *rest = json_pack("{s:{s:s, s:{}}, s:{s:s, s:i}, s:b, s:{s:s}, s:[o, o]}", /* files and log */
                             "LogConfig", "Type", "none", "Config", "RestartPolicy", "Name", "no",
                             "MaximumRetryCount", 0, "AutoRemove", 0, "Tmpfs", "/tmp", tmp, "Mounts",
                             bind_mount(s->broker_dir, BOX_BROKER_DIR, true),
                             bind_mount(s->workspace_dir, BOX_WORK_DIR, false));
    if (!host || !limits || !rest || json_object_update(host, limits) < 0 ||
        json_object_update(host, rest) < 0) {
        json_decref(host);
        host = NULL;
    }
    json_decref(limits);
    json_decref(rest);
    return host;
}

int spec_body(const struct box_spec *s, const char *seccomp, json_t **ret, struct err *err)
{
    char user[32];

    if (spec_check(s, err) < 0)
        return -1;
    snprintf(user, sizeof user, "%u:%u", (unsigned)s->uid, (unsigned)s->gid);
    json_t *body = json_pack("{s:s, s:s, s:s, s:[s], s:s, s:b, s:b, s:b, s:b, s:b, s:b, s:b}", /* process */
                             "Image", s->image_id, "Hostname", BOX_HOST_NAME, "Domainname", "", "Env",
                             BOX_HOME, "User", user, "AttachStdin", 1, "AttachStdout", 1, "AttachStderr", 1,
                             "OpenStdin", 1, "StdinOnce", 1, "Tty", 0, "NetworkDisabled", 1);
    json_t *more = json_pack("{s:{s:[s]}, s:{s:s, s:s, s:s}, s:o}", "Healthcheck", "Test", "NONE", "Labels",
                             BOX_LABEL_OWNER, s->installation, BOX_LABEL_BOOT, s->boot, BOX_LABEL_SLOT,
                             s->slot, "HostConfig", host_config(s, seccomp));
    if (!body || !more || json_object_update(body, more) < 0) {
        json_decref(body);
        json_decref(more);
        return err_no_memory(err);
    }
    json_decref(more);
    *ret = body;
    return 0;
}
