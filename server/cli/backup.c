/* backup: a consistent copy of the state while the service runs. The account makes it beside the state;
 * whoever called then moves it to where it belongs, which may be a folder that the account cannot write to.
 */
#include "base/fs.h"
#include "base/id.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* In a process of its own: opens the state as the account and copies it to `path`. */
static int copy_state(const struct cli *cli, const char *path)
{
    CLEANUP(session_close) struct session s;
    struct err err;

    session_init(&s);
    umask(077);
    if (session_open_reading(cli, &s) < 0)
        return 1;
    return db_backup(s.db, path, &err) < 0 ? cli_fail(&err) : 0;
}

static int run_copy(const struct cli *cli, const char *path)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0)
        _exit(copy_state(cli, path));
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

/* Into a new file that only the caller can read, and onto the disk. */
static int deliver(int from, const char *to, struct err *err)
{
    struct stat st;
    CLEANUP(close_fd) int fd = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return err_errno(err, errno, "make %s", to);
    if (fstat(from, &st) < 0)
        return err_errno(err, errno, "the copy");
    for (off_t left = st.st_size; left > 0;) {
        ssize_t n = sendfile(fd, from, NULL, (size_t)left);
        if (n <= 0) {
            unlink(to);
            return err_errno(err, n < 0 ? errno : EIO, "write %s", to);
        }
        left -= n;
    }
    return fsync(fd) < 0 ? err_errno(err, errno, "write %s", to) : 0;
}

/* Where the account can write: beside the state. */
static int scratch_path(const char *state_file, char out[PATH_MAX], struct err *err)
{
    char tag[ID_HEX_128];

    id_hex(tag, 16);
    if (snprintf(out, PATH_MAX, "%s.backup-%s", state_file, tag) >= PATH_MAX)
        return err_set(err, ERR_CONFIG, "the path of the state is too long");
    return 0;
}

int cmd_backup(const struct cli *cli)
{
    CLEANUP(config_free_p) struct config *config = NULL;
    char path[PATH_MAX];
    struct stat st;
    struct err err;

    if (cli_load(cli, &config) < 0)
        return 1;
    if (lstat(cli->words[0], &st) == 0) {
        err_set(&err, ERR_USAGE, "%s is there already", cli->words[0]);
        return cli_fail(&err);
    }
    if (scratch_path(config->state_file, path, &err) < 0)
        return cli_fail(&err);
    if (run_copy(cli, path) < 0) {
        unlink(path);
        return 1;
    }
    CLEANUP(close_fd) int from = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    int rc = from < 0 ? err_errno(&err, errno, "open the copy") : 0;
    unlink(path);
    if (rc == 0)
        rc = deliver(from, cli->words[0], &err);
    if (rc < 0)
        return cli_fail(&err);
    printf("%s\n", cli->words[0]);
    return 0;
}
