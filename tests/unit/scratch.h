/* scratch.h: a folder of the test's own, and children that are another user. */
#pragma once

#include "base/base.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define GUEST_UID 61234 /* nobody's: tests that run as root become it in a child */

/* A fresh folder with a canonical path; every call gives another. The caller frees. */
static inline char *scratch_dir(void)
{
    const char *base = getenv("TMPDIR");
    char path[256];
    snprintf(path, sizeof path, "%s/clo-t-XXXXXX", base && base[0] == '/' ? base : "/tmp");
    cr_assert(mkdtemp(path) != NULL, "mkdtemp %s", path);
    char *real = realpath(path, NULL);
    cr_assert(real != NULL, "realpath");
    return real;
}

/* "DIR/NAME"; the caller frees. */
static inline char *scratch_path(const char *dir, const char *name)
{
    char *path = NULL;
    cr_assert(asprintf(&path, "%s/%s", dir, name) > 0, "asprintf");
    return path;
}

/* A file of mode 0600 with these bytes and no others. */
static inline void scratch_write(const char *path, const void *data, size_t len)
{
    FILE *file = fopen(path, "we");
    cr_assert(file && fchmod(fileno(file), 0600) == 0 && fwrite(data, 1, len, file) == len, "%s", path);
    cr_assert(fclose(file) == 0, "%s", path);
}

static inline void scratch_remove(char *dir)
{
    char *command = NULL;
    cr_assert(asprintf(&command, "chmod -R u+rwx '%s' 2>/dev/null; rm -rf '%s'", dir, dir) > 0, "asprintf");
    cr_assert(system(command) == 0, "%s", command);
    free(command);
    free(dir);
}

/* Runs check(arg) in a child of another uid (this one when it is not root); its result is the exit code. */
static inline int scratch_as_guest(int (*check)(void *), void *arg)
{
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    cr_assert(pid >= 0, "fork");
    if (pid == 0) {
        if (getuid() == 0 && (setgid(GUEST_UID) < 0 || setuid(GUEST_UID) < 0))
            _exit(99);
        _exit(check(arg));
    }
    cr_assert(waitpid(pid, &status, 0) == pid, "waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
