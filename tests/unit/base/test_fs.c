#include "base/clock.h"
#include "base/fs.h"
#include "base/limits.h"

#include "../scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>

static void put(const char *dir, const char *name, const char *text)
{
    CLEANUP(free_str) char *path = scratch_path(dir, name);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

Test(fs, reads_regular_files_only_and_bounded)
{
    char *dir = scratch_dir(), *path = scratch_path(dir, "f"), *fifo = scratch_path(dir, "fifo");
    struct buf b = BUF_INIT(5);
    struct err err;

    put(dir, "f", "12345");
    cr_assert_eq(fs_read(path, &b, &err), 0, "%s", err.text);
    cr_assert_str_eq(b.data, "12345");
    buf_free(&b);
    put(dir, "f", "123456");
    cr_assert_eq(fs_read(path, &b, &err), -1);
    cr_assert_eq(err.code, ERR_TOO_LARGE);
    buf_free(&b);
    cr_assert_eq(mkfifo(fifo, 0600), 0);
    cr_assert_eq(fs_read(fifo, &b, &err), -1, "a fifo must not block");
    cr_assert_eq(fs_read(dir, &b, &err), -1);
    cr_assert_eq(fs_read("/nonexistent/x", &b, &err), -1);
    cr_assert_eq(err.code, ERR_SYSTEM);
    buf_free(&b);
    free(path);
    free(fifo);
    scratch_remove(dir);
}

Test(fs, contains_by_whole_components)
{
    cr_assert(fs_contains("/a", "/a"));
    cr_assert(fs_contains("/a", "/a/b"));
    cr_assert_not(fs_contains("/a", "/ab"));
    cr_assert_not(fs_contains("/a/b", "/a"));
    cr_assert(fs_contains("/", "/a"));
    cr_assert_not(fs_contains("/a", "/"));
}

static void assert_dir_fault(const char *path, const char *part)
{
    struct err err = {0};
    char *real = NULL;

    cr_assert_eq(fs_private_dir("run_root", path, getuid(), &real, &err), -1, "%s", path);
    cr_assert_null(real);
    cr_assert_eq(err.code, ERR_CONFIG, "%s: %s", path, err.text);
    cr_assert(strstr(err.text, part), "%s: %s", path, err.text);
    cr_assert_eq(strncmp(err.text, "run_root: ", 10), 0, "%s", err.text);
}

Test(fs, private_folder_has_an_error_for_each_rule)
{
    char *dir = scratch_dir(), *real = NULL;
    struct err err;

    cr_assert_eq(fs_private_dir("run_root", dir, getuid(), &real, &err), 0, "%s", err.text);
    cr_assert_str_eq(real, dir);
    free(STEAL(real));

    char *link = scratch_path(dir, "link"), *inner = scratch_path(dir, "inner");
    cr_assert_eq(mkdir(inner, 0700), 0);
    cr_assert_eq(symlink("inner", link), 0);
    cr_assert_eq(fs_private_dir("run_root", link, getuid(), &real, &err), 0, "%s", err.text);
    cr_assert_str_eq(real, inner, "the real path counts");
    free(real);

    assert_dir_fault("relative/path", "not an absolute path");
    assert_dir_fault("", "not an absolute path");
    assert_dir_fault("/", "must not be /");
    assert_dir_fault("/tmp/..", "must not be /");
    assert_dir_fault("/nonexistent/x", "No such file");
    static const mode_t modes[] = {0755, 0750, 0600, 01700, 02700, 0777};
    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        cr_assert_eq(chmod(inner, modes[i]), 0);
        assert_dir_fault(inner, "not 0700");
    }
    put(dir, "file", "");
    char *file = scratch_path(dir, "file"), *comma = scratch_path(dir, "a,b"),
         *line = scratch_path(dir, "a\nb");
    assert_dir_fault(file, "not a folder");
    cr_assert_eq(mkdir(comma, 0700), 0);
    cr_assert_eq(mkdir(line, 0700), 0);
    assert_dir_fault(comma, "comma or a line break");
    assert_dir_fault(line, "comma or a line break");
    cr_assert_eq(unlink(link), 0);
    cr_assert_eq(symlink("a,b", link), 0);
    assert_dir_fault(link, "comma or a line break");
    if (getuid() == 0) {
        cr_assert_eq(chmod(inner, 0700), 0);
        cr_assert_eq(chown(inner, GUEST_UID, GUEST_UID), 0);
        assert_dir_fault(inner, "owned by uid 61234, not by the service's uid 0");
    }
    free(file);
    free(comma);
    free(line);
    free(link);
    free(inner);
    scratch_remove(dir);
}

Test(fs, private_file_is_absent_or_plain_and_ours)
{
    char *dir = scratch_dir(), *path = scratch_path(dir, "f");
    struct err err;

    cr_assert_eq(fs_private_file("the state file", path, getuid(), &err), 0);
    put(dir, "f", "");
    cr_assert_eq(fs_private_file("the state file", path, getuid(), &err), 0);
    cr_assert_eq(fs_private_file("the state file", path, getuid() + 1, &err), -1);
    cr_assert(strstr(err.text, "owned by uid"), "%s", err.text);
    char *link = scratch_path(dir, "link");
    cr_assert_eq(symlink(path, link), 0);
    cr_assert_eq(fs_private_file("the state file", link, getuid(), &err), -1);
    cr_assert(strstr(err.text, "not a regular file"), "%s", err.text);
    cr_assert_eq(err.code, ERR_CONFIG);
    cr_assert_eq(fs_private_file("the state file", dir, getuid(), &err), -1);
    cr_assert(strstr(err.text, "not a regular file"), "%s", err.text);
    free(link);
    free(path);
    scratch_remove(dir);
}

Test(fs, open_subdir_makes_0700_and_follows_nothing)
{
    char *dir = scratch_dir(), *link = scratch_path(dir, "link");
    int top = open(dir, O_RDONLY | O_DIRECTORY);
    struct err err;
    struct stat st;

    umask(0);
    cr_assert_eq(fs_open_subdir(top, "sub", false, &err), -1);
    int fd = fs_open_subdir(top, "sub", true, &err);
    cr_assert_geq(fd, 0, "%s", err.text);
    cr_assert_eq(fstat(fd, &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0700);
    cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
    cr_assert_eq(symlink("sub", link), 0);
    cr_assert_eq(fs_open_subdir(top, "link", true, &err), -1);
    close(top);
    free(link);
    scratch_remove(dir);
}

/* A tree as a hostile guest of our own uid would leave it. */
static int make_hostile(const char *dir, int depth)
{
    char name[256];
    int at = open(dir, O_RDONLY | O_DIRECTORY), nested, sub;

    if (at < 0 || mkdirat(at, "tree", 0700) < 0)
        return -1;
    nested = openat(at, "tree", O_RDONLY | O_DIRECTORY);
    if (nested < 0 || symlinkat("../outside", nested, "link-out") < 0 ||
        symlinkat("/", nested, "link-root") < 0 || symlinkat("link-loop", nested, "link-loop") < 0 ||
        mkfifoat(nested, "fifo", 0) < 0 || mkdirat(nested, "locked", 0700) < 0)
        return -1;
    sub = openat(nested, "locked", O_RDONLY | O_DIRECTORY);
    if (sub < 0 || mkdirat(sub, "inner", 0700) < 0 || mkdirat(sub, "inner/more", 0700) < 0 ||
        symlinkat("../../../../outside", sub, "inner/more/out") < 0 || fchmodat(sub, "inner", 0, 0) < 0 ||
        fchmod(sub, 0) < 0)
        return -1;
    close(sub);
    if (mkdirat(nested, "readonly", 0700) < 0 || mkdirat(nested, "readonly/x", 0700) < 0 ||
        mkdirat(nested, "readonly/x/y", 0500) < 0 || fchmodat(nested, "readonly/x", 0500, 0) < 0 ||
        fchmodat(nested, "readonly", 0500, 0) < 0)
        return -1;
    mkdirat(nested, "many", 0700);
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "many/%d%s", i, i % 3 ? "" : "-folder-\xFF");
        if (i % 3 == 0 ? mkdirat(nested, name, 0) < 0
                       : close(openat(nested, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0)) < 0)
            return -1;
    }
    memset(name, 'n', 255);
    name[255] = '\0';
    for (int i = 0; i < depth; i++) {
        if (mkdirat(nested, name, 0700) < 0)
            return -1;
        sub = openat(nested, name, O_RDONLY | O_DIRECTORY);
        if (i % 5 == 4 && fchmod(nested, i % 2 ? 0 : 0500) < 0)
            return -1;
        close(nested);
        nested = sub;
        if (nested < 0)
            return -1;
    }
    close(nested);
    return close(at);
}

static int remove_hostile(void *arg)
{
    const char *dir = arg;
    struct err err;
    struct stat st;
    int at;

    umask(022);
    if (make_hostile(dir, 60) < 0) /* 60 × 256 bytes: far beyond PATH_MAX */
        return 10;
    at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int before = dup(0);
    close(before);
    if (fs_remove_tree(at, "tree", &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 11;
    }
    int after = dup(0);
    close(after);
    if (after != before)
        return 12;
    if (fstatat(at, "tree", &st, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
        return 13;
    if (fstatat(at, "outside/keep", &st, 0) < 0 || (st.st_mode & 07777) != 0640)
        return 14;
    if (fs_remove_tree(at, "tree", &err) < 0)
        return 15;
    return 0;
}

static char *make_outside(void)
{
    char *dir = scratch_dir(), *outside = scratch_path(dir, "outside"), *keep = scratch_path(outside, "keep");

    cr_assert_eq(mkdir(outside, 0700), 0);
    put(outside, "keep", "x");
    cr_assert_eq(chmod(keep, 0640), 0);
    if (getuid() == 0) {
        cr_assert_eq(chown(dir, GUEST_UID, GUEST_UID), 0);
        cr_assert_eq(chown(outside, GUEST_UID, GUEST_UID), 0);
        cr_assert_eq(chown(keep, GUEST_UID, GUEST_UID), 0);
    }
    free(outside);
    free(keep);
    return dir;
}

Test(fs, removes_a_hostile_tree_as_the_guests_own_uid)
{
    char *dir = make_outside();
    cr_assert_eq(scratch_as_guest(remove_hostile, dir), 0);
    scratch_remove(dir);
}

Test(fs, removes_a_hostile_tree_as_this_user)
{
    char *dir = make_outside();
    cr_assert_eq(remove_hostile(dir), 0);
    scratch_remove(dir);
}

Test(fs, a_thousand_levels_go_in_reasonable_time)
{
    char *dir = scratch_dir();
    struct err err;
    int64_t before = clock_mono_ms();

    cr_assert_eq(make_hostile(dir, 1000), 0);
    int at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert_eq(fs_remove_tree(at, "tree", &err), 0, "%s", err.text);
    cr_assert_lt(clock_mono_ms() - before, 20000);
    close(at);
    scratch_remove(dir);
}

Test(fs, a_symlink_or_file_of_that_name_goes_and_its_target_stays)
{
    char *dir = make_outside();
    int at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct err err;
    struct stat st;

    cr_assert_eq(symlinkat("outside", at, "tree"), 0);
    cr_assert_eq(fs_remove_tree(at, "tree", &err), 0, "%s", err.text);
    cr_assert_eq(fstatat(at, "outside/keep", &st, 0), 0);
    put(dir, "tree", "x");
    cr_assert_eq(fs_remove_tree(at, "tree", &err), 0, "%s", err.text);
    cr_assert_neq(fstatat(at, "tree", &st, AT_SYMLINK_NOFOLLOW), 0);
    close(at);
    scratch_remove(dir);
}

Test(fs, inodes_count_where_there_is_a_number_of_them)
{
    struct statvfs v = {.f_frsize = 4096, .f_blocks = 1000, .f_bavail = 500, .f_files = 200, .f_favail = 8};
    int64_t bytes = 0;
    int percent = -1;

    fs_free_of(&v, &bytes, &percent);
    cr_assert_eq(bytes, 500 * 4096);
    cr_assert_eq(percent, 4, "of the inodes");
    v.f_favail = 150;
    fs_free_of(&v, &bytes, &percent);
    cr_assert_eq(percent, 50, "of the bytes");
    v.f_files = v.f_favail = 0;
    fs_free_of(&v, &bytes, &percent);
    cr_assert_eq(percent, 50, "as many as there is room for");
    v.f_blocks = v.f_bavail = 0;
    fs_free_of(&v, &bytes, &percent);
    cr_assert_eq(percent, 100);
}

Test(fs, free_space_is_told_and_unknown_is_no_room)
{
    int64_t bytes = 0;
    int percent = -1;
    struct err err;

    cr_assert_eq(fs_free("/tmp", &bytes, &percent, &err), 0, "%s", err.text);
    cr_assert(bytes > 0 && percent >= 0 && percent <= 100);
    cr_assert_eq(fs_has_room("/tmp"), bytes >= LIMIT_DISK_FREE_BYTES && percent >= LIMIT_DISK_FREE_PERCENT);
    cr_assert_eq(fs_free("/nonexistent/x", &bytes, &percent, &err), -1);
    cr_assert_not(fs_has_room("/nonexistent/x"));
}
