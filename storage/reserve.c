#include "storage/reserve.h"

#include "base/fs.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int reserve_init(struct reserve *r, const char *database_path, struct err *err)
{
    if (asprintf(&r->path, "%s.reserve", database_path) < 0) {
        r->path = NULL;
        return err_no_memory(err);
    }
    r->held = false;
    return 0;
}

/* The disk of the reserve, by the folder that it lies in. */
static bool has_room(const struct reserve *r)
{
    const char *slash = strrchr(r->path, '/');
    CLEANUP(free_str) char *folder = slash ? strndup(r->path, (size_t)(slash - r->path) + 1) : strdup(".");

    return folder && fs_has_room(folder);
}

void reserve_take(struct reserve *r)
{
    struct stat st;

    if (r->held)
        return;
    /* What an earlier run has put aside counts, however full the disk is now. */
    if (lstat(r->path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= RESERVE_BYTES) {
        r->held = true;
        return;
    }
    if (!has_room(r))
        return;
    CLEANUP(close_fd) int fd = open(r->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return;
    r->held = posix_fallocate(fd, 0, RESERVE_BYTES) == 0;
    if (!r->held)
        unlink(r->path);
}

bool reserve_release(struct reserve *r)
{
    if (!r->held)
        return false;
    r->held = false;
    return unlink(r->path) == 0;
}

void reserve_done(struct reserve *r)
{
    free(r->path);
    r->path = NULL;
}
