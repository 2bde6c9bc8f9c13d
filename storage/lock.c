#include "storage/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>

int state_lock(const char *state_file, struct err *err)
{
    CLEANUP(free_str) char *path = NULL;

    if (asprintf(&path, "%s.lock", state_file) < 0) {
        path = NULL;
        return err_no_memory(err);
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_errno(err, errno, "open %s", path);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    int why = errno;
    close(fd);
    if (why == EWOULDBLOCK)
        return err_set(err, ERR_CONFLICT, "another process uses the state %s", state_file);
    return err_errno(err, why, "lock %s", path);
}
