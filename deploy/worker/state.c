#include "state.h"

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define FOLDER ".cloister"

int state_open(const char *workspace, struct err *err)
{
    struct err ignored;
    CLEANUP(close_fd) int top = open(workspace, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (top < 0)
        return err_errno(err, errno, "open the workspace");
    int fd = fs_open_subdir(top, FOLDER, true, &ignored);
    if (fd >= 0)
        return fd;
    if (fs_remove_tree(top, FOLDER, err) < 0)
        return err_wrap(err, "make way for " FOLDER);
    return fs_open_subdir(top, FOLDER, true, err);
}

int state_read(int dirfd, const char *name, struct buf *b, struct err *err)
{
    CLEANUP(close_fd) int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0 && errno == ENOENT)
        return err_set(err, ERR_NOT_FOUND, "%s is absent", name);
    if (fd < 0)
        return err_errno(err, errno, "open %s", name);
    return fs_read_fd(fd, name, b, err);
}

static int rename_over(int dirfd, const char *from, const char *to, struct err *err)
{
    if (renameat(dirfd, from, dirfd, to) == 0)
        return 0;
    if (errno != EISDIR && errno != ENOTEMPTY && errno != EEXIST)
        return err_errno(err, errno, "rename to %s", to);
    if (fs_remove_tree(dirfd, to, err) < 0)
        return err_wrap(err, "make way for %s", to);
    return renameat(dirfd, from, dirfd, to) == 0 ? 0 : err_errno(err, errno, "rename to %s", to);
}

int state_write(int dirfd, const char *name, const char *data, size_t len, struct err *err)
{
    char temp[64];

    if (snprintf(temp, sizeof temp, "%s.tmp", name) >= (int)sizeof temp)
        return err_set(err, ERR_INTERNAL, "%s: name too long", name);
    if (fs_remove_tree(dirfd, temp, err) < 0)
        return err_wrap(err, "make way for %s", temp);
    int fd = openat(dirfd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(err, errno, "create %s", temp);
    int failed = fs_write_fd(fd, data, len) < 0 ? errno : 0;
    if (close(fd) < 0 && !failed)
        failed = errno;
    if (!failed && rename_over(dirfd, temp, name, err) == 0)
        return 0;
    unlinkat(dirfd, temp, 0);
    return failed ? err_errno(err, failed, "write %s", name) : -1;
}
