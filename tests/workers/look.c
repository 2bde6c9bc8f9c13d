/* workers/look.c: what the container looks like from inside. */
#include "hostile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

/* The lines of a file, from line `skip` on. */
static json_t *lines_of(const char *path, unsigned skip)
{
    json_t *list = json_array();
    char line[4096];

    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (skip > 0)
            skip--;
        else
            json_array_append_new(list, json_string(line));
    }
    if (file)
        fclose(file);
    return list;
}

static json_t *interfaces(void)
{
    json_t *list = json_array();
    char line[512];

    FILE *file = fopen("/proc/net/dev", "re");
    for (unsigned n = 0; file && fgets(line, sizeof line, file); n++) {
        char *end = strchr(line, ':');
        if (n < 2 || !end)
            continue;
        *end = '\0';
        json_array_append_new(list, json_string(line + strspn(line, " ")));
    }
    if (file)
        fclose(file);
    return list;
}

/* The fields of /proc/self/status that tell of privileges. */
static json_t *status(void)
{
    static const char *const wanted[] = {"Uid",    "Gid",    "Groups", "CapInh",     "CapPrm",
                                         "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"};
    json_t *object = json_object();
    char line[512];

    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file)) {
        char *value = strchr(line, ':');
        if (!value)
            continue;
        *value++ = '\0';
        value += strspn(value, " \t");
        value[strcspn(value, "\n")] = '\0';
        for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
            if (strcmp(line, wanted[i]) == 0)
                json_object_set_new(object, line, json_string(value));
    }
    if (file)
        fclose(file);
    return object;
}

/* "writable", or why a file cannot be made there. */
static json_t *writability(void)
{
    static const char *const dirs[] = {"/",         "/broker",  "/workspace",     "/tmp",
                                       "/dev",      "/dev/shm", "/etc",           "/proc",
                                       "/proc/sys", "/sys",     "/sys/fs/cgroup", "/dev/mqueue"};
    json_t *object = json_object();

    for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/probe", dirs[i]);
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        json_object_set_new(object, dirs[i], json_string(fd < 0 ? strerror(errno) : "writable"));
        if (fd >= 0) {
            close(fd);
            unlink(path);
        }
    }
    return object;
}

static json_t *names_in(const char *path)
{
    json_t *list = json_array();
    const struct dirent *entry;

    DIR *dir = opendir(path);
    while (dir && (entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            json_array_append_new(list, json_string(entry->d_name));
    if (dir)
        closedir(dir);
    return list;
}

static json_t *limit(int what)
{
    struct rlimit l = {0, 0};

    getrlimit(what, &l);
    return json_pack("[I, I]", (json_int_t)l.rlim_cur, (json_int_t)l.rlim_max);
}

json_t *look_around(void)
{
    char host[256] = "";
    struct stat st;
    json_t *env = json_array();

    for (char **e = environ; *e; e++)
        json_array_append_new(env, json_string(*e));
    gethostname(host, sizeof host - 1);
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:s, s:i}", "interfaces",
                     interfaces(), "routes", lines_of("/proc/net/route", 1), "routes6",
                     lines_of("/proc/net/ipv6_route", 0), "mounts", lines_of("/proc/self/mounts", 0),
                     "status", status(), "write", writability(), "env", env, "cgroup",
                     lines_of("/proc/self/cgroup", 0), "root", names_in("/"), "nofile", limit(RLIMIT_NOFILE),
                     "core", limit(RLIMIT_CORE), "host", host, "shm",
                     stat("/dev/shm", &st) < 0 ? "absent" : "present", "pid", (int)getpid());
}
