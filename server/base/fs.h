/* base/fs.h: files and folders whose names or contents may be hostile. Thread-safe. */
#pragma once

#include "base/buf.h"

#include <stdbool.h>
#include <sys/statvfs.h>
#include <sys/types.h>

/* Whole file into b (bounded by b->max → ERR_TOO_LARGE). Regular files only; close-on-exec. */
MUST_USE int fs_read(const char *path, struct buf *b, struct err *err);
/* The same from an open descriptor, to its end; `name` is for messages. */
MUST_USE int fs_read_fd(int fd, const char *name, struct buf *b, struct err *err);
/* All of it, and onto the disk. 0, or -1 with errno. */
MUST_USE int fs_write_fd(int fd, const char *data, size_t len);
/* realpath(3) into a fresh string; caller frees. */
MUST_USE int fs_real(const char *path, char **ret, struct err *err);
/* True when `inner` is `outer` or lies below it. Both canonical, absolute. Pure. */
bool fs_contains(const char *outer, const char *inner);
/* A folder as mission.md 3 asks: absolute, not "/", a real directory, owned by `uid`, mode 0700, no comma or
 * line break in its real path, which is returned; caller frees. ERR_CONFIG names the rule that failed. */
MUST_USE int fs_private_dir(const char *what, const char *path, uid_t uid, char **ret, struct err *err);
/* A state file as mission.md 3 asks: absent, or a regular file of `uid`, no symlink. ERR_CONFIG. */
MUST_USE int fs_private_file(const char *what, const char *path, uid_t uid, struct err *err);
/* Makes (mode 0700) or opens the folder `name` below `dirfd` without following a symlink; returns a
 * descriptor (O_PATH-free, close-on-exec) or -1. `name` has no slash. */
MUST_USE int fs_open_subdir(int dirfd, const char *name, bool create, struct err *err);
/* Removes the folder `name` below `dirfd` with all that is in it, never following a symlink, recovering from
 * modes that a guest of the same uid has set. Absent is fine. */
MUST_USE int fs_remove_tree(int dirfd, const char *name, struct err *err);
/* Free bytes for unprivileged users, and in percent the lower of two shares that are free: of the bytes, and
 * of the inodes where the file system has a fixed number of them. */
MUST_USE int fs_free(const char *path, int64_t *bytes, int *percent, struct err *err);
/* The same from what statvfs(3) tells. Pure. */
void fs_free_of(const struct statvfs *v, int64_t *bytes, int *percent);
/* True when the disk at path is above the floor of mission.md 3. False as well when it cannot be asked. */
bool fs_has_room(const char *path);
