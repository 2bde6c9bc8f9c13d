/* base/proc.h: other processes, named by pidfd or by pid plus start time. Thread-safe. */
#pragma once

#include "base/buf.h"

#include <stdbool.h>
#include <sys/types.h>

/* Runs argv (absolute path first) with a minimal environment (PATH, HOME=/), no input, stderr discarded, in
 * its own session; its standard output goes into out. The whole session is killed at the deadline
 * (ERR_TIMEOUT). ERR_SYSTEM when it cannot start or does not exit with 0. Needs no SIGCHLD handler. */
MUST_USE int proc_run(char *const argv[], int timeout_ms, struct buf *out, struct err *err);
/* The same, and ERR_CANCELED as soon as cancel_fd (-1: none) is readable. */
MUST_USE int proc_run_cancel(char *const argv[], int timeout_ms, int cancel_fd, struct buf *out,
                             struct err *err);
/* pidfd_open(2), close-on-exec; -1 when it is gone. */
MUST_USE int proc_pidfd(pid_t pid, struct err *err);
/* pidfd_send_signal(2); 0 also when it is gone already. */
MUST_USE int proc_signal(int pidfd, int sig, struct err *err);
/* Start time in clock ticks since boot (/proc/PID/stat, field 22); 0 when there is no such process. */
uint64_t proc_start_time(pid_t pid);
/* True when any line of /proc/PID/cgroup names `id` (a container id). */
bool proc_in_cgroup(pid_t pid, const char *id);
/* As many open files as the hard limit allows: each waiting client holds one. */
void proc_raise_nofile(void);
/* fs.epoll.max_user_watches: how many a uid may have on this machine; 0: not known. */
uint64_t proc_epoll_watches(void);
/* mission.md 2: undumpable, no_new_privs, core limit 0, SIGPIPE ignored, environment cleared. Once, before
 * any thread. */
MUST_USE int proc_seal_self(struct err *err);
