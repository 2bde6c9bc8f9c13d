#include "base/fs.h"

#include "base/id.h"
#include "base/limits.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

int fs_read_fd(int fd, const char *name, struct buf *b, struct err *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_errno(err, errno, "stat %s", name);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_SYSTEM, "%s is not a regular file", name);
    for (;;) {
        char chunk[8192];
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(err, errno, "read %s", name);
        if (n == 0)
            return 0;
        if (buf_add(b, chunk, (size_t)n, err) < 0)
            return err_wrap(err, "read %s", name);
    }
}

int fs_read(const char *path, struct buf *b, struct err *err)
{
    CLEANUP(close_fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return err_errno(err, errno, "open %s", path);
    return fs_read_fd(fd, path, b, err);
}

int fs_write_fd(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        data += n;
        len -= (size_t)n;
    }
    return fsync(fd);
}

int fs_real(const char *path, char **ret, struct err *err)
{
    char *real = realpath(path, NULL);

    if (!real)
        return err_errno(err, errno, "%s", path);
    *ret = real;
    return 0;
}

bool fs_contains(const char *outer, const char *inner)
{
    size_t len = strlen(outer);

    if (strcmp(outer, "/") == 0)
        return inner[0] == '/';
    return strncmp(outer, inner, len) == 0 && (inner[len] == '\0' || inner[len] == '/');
}

int fs_private_dir(const char *what, const char *path, uid_t uid, char **ret, struct err *err)
{
    struct stat st;
    CLEANUP(free_str) char *real = NULL;

    if (path[0] != '/')
        return err_set(err, ERR_CONFIG, "%s: %s is not an absolute path", what, path);
    if (fs_real(path, &real, err) < 0) {
        err->code = ERR_CONFIG;
        return err_wrap(err, "%s", what);
    }
    if (strcmp(real, "/") == 0)
        return err_set(err, ERR_CONFIG, "%s: must not be /", what);
    if (strpbrk(real, ",\r\n"))
        return err_set(err, ERR_CONFIG, "%s: the path holds a comma or a line break", what);
    if (lstat(real, &st) < 0)
        return err_errno(err, errno, "%s: %s", what, real);
    if (!S_ISDIR(st.st_mode))
        return err_set(err, ERR_CONFIG, "%s: %s is not a folder", what, real);
    if (st.st_uid != uid)
        return err_set(err, ERR_CONFIG, "%s: %s is owned by uid %u, not by the service's uid %u", what, real,
                       st.st_uid, uid);
    if ((st.st_mode & 07777) != 0700)
        return err_set(err, ERR_CONFIG, "%s: %s has mode %04o, not 0700", what, real, st.st_mode & 07777);
    *ret = STEAL(real);
    return 0;
}

int fs_private_file(const char *what, const char *path, uid_t uid, struct err *err)
{
    struct stat st;

    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : err_errno(err, errno, "%s: %s", what, path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_CONFIG, "%s: %s is not a regular file", what, path);
    if (st.st_uid != uid)
        return err_set(err, ERR_CONFIG, "%s: %s is owned by uid %u, not by the service's uid %u", what, path,
                       st.st_uid, uid);
    return 0;
}

int fs_open_subdir(int dirfd, const char *name, bool create, struct err *err)
{
    if (create && mkdirat(dirfd, name, 0700) < 0 && errno != EEXIST)
        return err_errno(err, errno, "make folder %s", name);
    int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "open folder %s", name);
    return fd;
}

/* Opens a folder that is to be emptied, giving ourselves the rights that a guest may have taken away. chmod
 * follows symlinks, so what the name stands for is asked first; inside a private root only we race. */
static int open_for_removal(int dirfd, const char *name)
{
    struct stat st;
    int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 && errno == EACCES && fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISDIR(st.st_mode) && fchmodat(dirfd, name, 0700, 0) == 0)
        fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        (void)!fchmod(fd, 0700);
    return fd;
}

/* Empties the folder behind `fd` (taken over) without recursion, so that nesting costs neither stack nor
 * descriptors: a sub-folder that is not empty is lifted up into `top` under a fresh name and emptied later.
 */
static int empty_once(int top, int fd, bool *lifted)
{
    DIR *dir = fdopendir(fd);
    struct dirent *entry;

    if (!dir) {
        close(fd);
        return -1;
    }
    int failed = 0;
    while (!failed && (entry = readdir(dir))) {
        const char *name = entry->d_name;
        char fresh[40];
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        if (unlinkat(dirfd(dir), name, 0) == 0 || errno == ENOENT)
            continue;
        if (unlinkat(dirfd(dir), name, AT_REMOVEDIR) == 0)
            continue;
        int sub = open_for_removal(dirfd(dir), name);
        if (sub < 0) {
            failed = errno;
            break;
        }
        close(sub);
        id_new("x", fresh, sizeof fresh);
        if (dirfd(dir) != top && renameat(dirfd(dir), name, top, fresh) < 0)
            failed = errno;
        *lifted = true;
    }
    closedir(dir);
    errno = failed;
    return failed ? -1 : 0;
}

/* One pass over the direct children of top: each sub-folder is emptied (its own sub-folders lifted) and
 * removed. */
static int flatten(int top, bool *more)
{
    struct dirent *entry;
    int fd = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (!dir) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    int failed = 0;
    while (!failed && (entry = readdir(dir))) {
        bool lifted = false;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (unlinkat(top, entry->d_name, 0) == 0 || unlinkat(top, entry->d_name, AT_REMOVEDIR) == 0)
            continue;
        *more = true;
        int sub = open_for_removal(top, entry->d_name);
        if (sub < 0) {
            failed = errno == ENOENT ? 0 : errno;
            continue;
        }
        if (empty_once(top, sub, &lifted) < 0)
            failed = errno;
    }
    closedir(dir);
    errno = failed;
    return failed ? -1 : 0;
}

int fs_remove_tree(int dirfd, const char *name, struct err *err)
{
    CLEANUP(close_fd) int top = open_for_removal(dirfd, name);

    if (top < 0 && errno == ENOENT)
        return 0;
    if (top < 0 && (errno == ENOTDIR || errno == ELOOP))
        return unlinkat(dirfd, name, 0) == 0 ? 0 : err_errno(err, errno, "remove %s", name);
    if (top < 0)
        return err_errno(err, errno, "open %s", name);
    for (unsigned pass = 0; pass < 1000000; pass++) {
        bool more = false;
        if (flatten(top, &more) < 0)
            return err_errno(err, errno, "empty %s", name);
        if (!more)
            break;
    }
    if (unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
        return err_errno(err, errno, "remove %s", name);
    return 0;
}

static int share(uint64_t part, uint64_t whole)
{
    return whole ? (int)((double)part * 100 / (double)whole) : 100;
}

void fs_free_of(const struct statvfs *v, int64_t *bytes, int *percent)
{
    int of_bytes = share(v->f_bavail, v->f_blocks), of_inodes = share(v->f_favail, v->f_files);

    *bytes = (int64_t)v->f_bavail * (int64_t)v->f_frsize;
    *percent = of_bytes < of_inodes ? of_bytes : of_inodes;
}

int fs_free(const char *path, int64_t *bytes, int *percent, struct err *err)
{
    struct statvfs v;

    if (statvfs(path, &v) < 0)
        return err_errno(err, errno, "statvfs %s", path);
    fs_free_of(&v, bytes, percent);
    return 0;
}

bool fs_has_room(const char *path)
{
    struct err err;
    int64_t bytes = 0;
    int percent = 0;

    if (fs_free(path, &bytes, &percent, &err) < 0)
        return false;
    return bytes >= LIMIT_DISK_FREE_BYTES && percent >= LIMIT_DISK_FREE_PERCENT;
}
