#include "sandbox/cgroup.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define LINE_MAX_BYTES 4096

/* Is `word` one of the comma-separated words of `list`, which ends at any of " \n:"? */
static bool has_word(const char *list, const char *word)
{
    size_t len = strlen(word);

    for (;;) {
        size_t n = strcspn(list, ", \n:");
        if (n == len && strncmp(list, word, len) == 0)
            return true;
        if (list[n] != ',')
            return false;
        list += n + 1;
    }
}

/* The path of `controller` ("" for v2) in /proc/PID/cgroup: lines of "ID:controllers:path". */
static bool path_in_hierarchy(pid_t pid, const char *controller, char out[CGROUP_PATH_MAX])
{
    char line[LINE_MAX_BYTES], name[64];
    bool found = false;

    snprintf(name, sizeof name, "/proc/%d/cgroup", (int)pid);
    FILE *file = fopen(name, "re");
    if (!file)
        return false;
    while (!found && fgets(line, sizeof line, file)) {
        char *list = strchr(line, ':');
        char *path = list ? strchr(++list, ':') : NULL;
        if (!path || (controller[0] ? !has_word(list, controller) : path != list))
            continue;
        path[1 + strcspn(path + 1, "\n")] = '\0';
        found = snprintf(out, CGROUP_PATH_MAX, "%s", path + 1) < CGROUP_PATH_MAX;
    }
    fclose(file);
    return found;
}

/* Where that hierarchy is mounted, and which part of it: /proc/self/mountinfo, proc(5). */
static bool mount_of(const char *controller, char point[CGROUP_PATH_MAX], char root[CGROUP_PATH_MAX])
{
    char line[LINE_MAX_BYTES], type[32], options[256];
    bool found = false;

    FILE *file = fopen("/proc/self/mountinfo", "re");
    if (!file)
        return false;
    while (!found && fgets(line, sizeof line, file)) {
        const char *rest = strstr(line, " - ");
        if (!rest || sscanf(rest, " - %31s %*s %255s", type, options) != 2 ||
            strcmp(type, controller[0] ? "cgroup" : "cgroup2") != 0 ||
            (controller[0] && !has_word(options, controller)))
            continue;
        found = sscanf(line, "%*s %*s %*s %511s %511s", root, point) == 2;
    }
    fclose(file);
    return found;
}

static bool find_dir(pid_t pid, const char *controller, char out[CGROUP_PATH_MAX])
{
    char path[CGROUP_PATH_MAX], point[CGROUP_PATH_MAX], root[CGROUP_PATH_MAX];

    if (!path_in_hierarchy(pid, controller, path) || !mount_of(controller, point, root))
        return false;
    size_t skip = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(path, root, skip) != 0)
        return false;
    return snprintf(out, CGROUP_PATH_MAX, "%s%s", point, path + skip) < CGROUP_PATH_MAX;
}

/* In a hybrid set-up the controllers are in v1, although v2 lists the process too. */
static void find(pid_t pid, const char *controller, struct cgroup_dir *ret)
{
    ret->v2 = false;
    if (find_dir(pid, controller, ret->path))
        return;
    ret->v2 = true;
    if (!find_dir(pid, "", ret->path))
        ret->path[0] = '\0';
}

void cgroup_find(pid_t pid, struct cgroup *ret)
{
    find(pid, "cpuacct", &ret->cpu);
    find(pid, "memory", &ret->memory);
    find(pid, "pids", &ret->pids);
}

/* The number in a file, or the one after `key` at the start of a line; -1 when there is none. */
static int64_t number(const struct cgroup_dir *dir, const char *file, const char *key)
{
    char path[CGROUP_PATH_MAX + 64], text[LINE_MAX_BYTES];

    if (dir->path[0] == '\0')
        return -1;
    snprintf(path, sizeof path, "%s/%s", dir->path, file);
    CLEANUP(close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return -1;
    text[n] = '\0';
    if (!key)
        return strtoll(text, NULL, 10);
    size_t len = strlen(key);
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (strncmp(line, key, len) == 0 && line[len] == ' ')
            return strtoll(line + len + 1, NULL, 10);
    return -1;
}

/* The counts first: an ending hangs on them, and the files may go at any moment. */
void cgroup_read(const struct cgroup *c, struct cgroup_usage *ret)
{
    ret->pids_hits = number(&c->pids, "pids.events", "max");
    ret->oom_kills = number(&c->memory, c->memory.v2 ? "memory.events" : "memory.oom_control", "oom_kill");
    ret->memory_peak = number(&c->memory, c->memory.v2 ? "memory.peak" : "memory.max_usage_in_bytes", NULL);
    if (c->cpu.v2) {
        ret->cpu_us = number(&c->cpu, "cpu.stat", "usage_usec");
    } else {
        int64_t ns = number(&c->cpu, "cpuacct.usage", NULL);
        ret->cpu_us = ns < 0 ? -1 : ns / 1000;
    }
}
