/* sandbox/cgroup.h: what a container used, from its cgroup's files (docker.md 13). v1, v2 and hybrid.
 *
 * The files go away 5 to 60 ms after the first process has exited: read when its pidfd reports the exit. What
 * cannot be read is -1. Thread-safe. */
#pragma once

#include "base/base.h"

#include <stdbool.h>
#include <sys/types.h>

#define CGROUP_PATH_MAX 512

struct cgroup_dir {
    char path[CGROUP_PATH_MAX]; /* "" when not found */
    bool v2;
};

struct cgroup {
    struct cgroup_dir cpu, memory, pids;
};

struct cgroup_usage {
    int64_t cpu_us;
    int64_t memory_peak; /* bytes */
    int64_t oom_kills;   /* processes killed for memory */
    int64_t pids_hits;   /* forks that the pids limit refused */
};

#define CGROUP_UNKNOWN ((struct cgroup_usage){-1, -1, -1, -1})

/* Where the cgroup of a process is mounted. */
void cgroup_find(pid_t pid, struct cgroup *ret);
void cgroup_read(const struct cgroup *cgroup, struct cgroup_usage *ret);
