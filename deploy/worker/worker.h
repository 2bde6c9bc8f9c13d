/* worker.h: one turn from standard input to the reply. (mission.md section 7) */
#pragma once

#include "base/err.h"

struct worker {
    int in_fd;               /* one line comes from here; may stay open afterwards */
    int out_fd;              /* the reply goes here */
    int stop_fd;             /* readable when the worker is to stop; -1: never */
    const char *socket_path; /* of the broker */
};

/* Runs the turn and writes exactly one line, as long as anybody reads it. What the turn changes in the
 * workspace is on disk before the line's newline. Returns the exit code: 0 after {"ok":true}, else 1. */
int worker_run(const struct worker *w);
/* The same with SIGTERM and SIGINT as the stop; for a process with one thread. */
int worker_main(int in_fd, int out_fd, const char *socket_path);
