#include "base/limits.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "storage/lock.h"
#include "upstream/client.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define ANSWER_MAX (8 * 1024 * 1024)

int cli_fail(const struct err *err)
{
    CLEANUP(free_str) char *safe = utf8_escape_control(err->text, strlen(err->text));

    fprintf(stderr, "cloister: %s\n", safe ? safe : "out of memory");
    return 1;
}

void cli_print_text(FILE *out, const char *text)
{
    while (*text) {
        size_t plain = strcspn(text, "\n\t");
        CLEANUP(free_str) char *safe = utf8_escape_control(text, plain);
        if (safe)
            fputs(safe, out);
        text += plain;
        if (*text)
            fputc(*text++, out);
    }
}

void cli_print_faults(const char *path, const struct json_faults *faults)
{
    json_t *fault;
    size_t i;

    json_array_foreach(faults->list, i, fault) {
        const char *pointer = json_str(fault, "pointer"), *detail = json_str(fault, "detail");
        fprintf(stderr, "%s: ", path);
        cli_print_text(stderr, pointer && *pointer ? pointer : "(top)");
        fputs(": ", stderr);
        cli_print_text(stderr, detail ? detail : "");
        fputc('\n', stderr);
    }
    if (faults->total > json_array_size(faults->list))
        fprintf(stderr, "%s: and %zu more\n", path, faults->total - json_array_size(faults->list));
}

int cli_load(const struct cli *cli, struct config **ret)
{
    struct json_faults faults = {0};
    struct err err;

    if (config_load(cli->config_path, ret, &faults, &err) == 0)
        return 0;
    if (faults.total > 0)
        cli_print_faults(cli->config_path, &faults);
    else
        cli_fail(&err);
    json_faults_free(&faults);
    return -1;
}

int become_account(const char *state_file, struct err *err)
{
    CLEANUP(free_str) char *dir = strdup(state_file);
    struct stat st;

    if (!dir)
        return err_no_memory(err);
    *strrchr(dir, '/') = '\0';
    if (stat(dir[0] ? dir : "/", &st) < 0)
        return err_errno(err, errno, "the state's folder %s", dir);
    if (st.st_uid == 0)
        return err_set(err, ERR_CONFIG,
                       "the state's folder %s belongs to root; it must belong to the service's account", dir);
    if (geteuid() == st.st_uid)
        return 0;
    if (geteuid() != 0)
        return err_set(err, ERR_CONFIG, "only root and the account with uid %u may do this", st.st_uid);
    struct passwd *pw = getpwuid(st.st_uid);
    gid_t gid = pw ? pw->pw_gid : st.st_gid;
    if (gid == 0)
        return err_set(err, ERR_CONFIG, "the group of the service's account is root's");
    if ((pw ? initgroups(pw->pw_name, gid) : setgroups(1, &gid)) < 0 || setresgid(gid, gid, gid) < 0 ||
        setresuid(st.st_uid, st.st_uid, st.st_uid) < 0)
        return err_errno(err, errno, "become uid %u", st.st_uid);
    return 0;
}

/* Does a server answer on the admin socket? A file that nobody listens on is what a killed server left. */
static bool answers(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    CLEANUP(close_fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || strlen(path) >= sizeof address.sun_path)
        return false;
    memcpy(address.sun_path, path, strlen(path) + 1);
    return connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
}

static int open_state(struct session *s, enum db_mode mode, struct err *err)
{
    if (mode == DB_WRITE && (s->lock = state_lock(s->roots.state_file, err)) < 0)
        return -1;
    return db_open(s->roots.state_file, mode, &s->db, err);
}

/* Configuration, account, roots. */
static int prepare(const struct cli *cli, struct session *s)
{
    struct json_faults faults = {0};
    struct err err;

    if (cli_load(cli, &s->config) < 0)
        return -1;
    int rc = become_account(s->config->state_file, &err);
    if (rc == 0)
        rc = roots_check(s->config, geteuid(), &s->roots, &faults, &err);
    if (faults.total > 0)
        cli_print_faults(cli->config_path, &faults);
    else if (rc < 0)
        cli_fail(&err);
    json_faults_free(&faults);
    return rc;
}

int session_open(const struct cli *cli, enum db_mode mode, struct session *s)
{
    struct err err;

    if (prepare(cli, s) < 0)
        return -1;
    s->online = answers(s->roots.admin_socket);
    if (s->online || open_state(s, mode, &err) == 0)
        return 0;
    cli_fail(&err);
    return -1;
}

int session_open_reading(const struct cli *cli, struct session *s)
{
    struct err err;

    if (prepare(cli, s) < 0)
        return -1;
    if (open_state(s, DB_READ, &err) == 0)
        return 0;
    cli_fail(&err);
    return -1;
}

void session_close(struct session *s)
{
    db_close(s->db);
    close_fd(&s->lock);
    roots_free(&s->roots);
    config_free(s->config);
    *s = (struct session){.lock = -1};
}

int session_call(const struct session *s, const char *method, const char *path, const json_t *body,
                 json_t **ret, struct err *err)
{
    CLEANUP(buf_free) struct buf answer = BUF_INIT(ANSWER_MAX);
    CLEANUP(json_free) json_t *value = NULL;
    CLEANUP(free_str) char *text = NULL;
    struct client_request req = {.method = method,
                                 .base = "http://localhost",
                                 .unix_socket = s->roots.admin_socket,
                                 .path = path,
                                 .timeout_ms = 30000};
    int status = 0;

    if (body && json_text(body, &text, err) < 0)
        return -1;
    req.body = text;
    if (client_call(&req, &status, &answer, err) < 0)
        return -1;
    if (answer.len > 0 && json_parse(answer.data, answer.len, &value, err) < 0)
        return err_wrap(err, "the server's answer");
    if (status >= 400) {
        const char *detail = json_str(value, "detail"), *title = json_str(value, "title");
        return err_set(err, status == 404 ? ERR_NOT_FOUND : ERR_CONFLICT, "%s",
                       detail  ? detail
                       : title ? title
                               : "refused");
    }
    if (ret)
        *ret = json_steal(&value);
    return 0;
}
