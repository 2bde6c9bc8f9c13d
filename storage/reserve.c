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

void reserve_take(struct reserve *r)
{
    char folder[4096];
    struct stat st;

    if (r->held)
        return;
    snprintf(folder, sizeof folder, "%s", r->path);
    *strrchr(folder, '/') = '\0';
    if (!fs_has_room(folder))
        return;
    CLEANUP(close_fd)
    int fd = open(r->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && st.st_size >= RESERVE_BYTES)
        r->held = true;
    else
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
