/* turn: a client of the service: live state on standard error, then the reply on standard output. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/secret.h"
#include "build.h"
#include "cli/cli.h"
#include "upstream/client.h"

#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define ANSWER_MAX (8 * 1024 * 1024)
#define POLL_MS    150

struct target {
    char *url, *key;
};

static void target_free(struct target *t)
{
    if (t->key)
        secret_wipe(t->key, strlen(t->key));
    free(t->url);
    free(t->key);
}

/* One line NAME=value of demo.env, without quoting. */
static void take_line(struct target *t, const char *line, size_t len)
{
    if (len > 13 && strncmp(line, "CLOISTER_URL=", 13) == 0 && !t->url)
        t->url = strndup(line + 13, len - 13);
    if (len > 13 && strncmp(line, "CLOISTER_KEY=", 13) == 0 && !t->key)
        t->key = strndup(line + 13, len - 13);
}

/* demo.env beside this very binary, of the caller and nobody else's to read. Absent is fine. */
static int read_demo(struct target *t, struct err *err)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT(4096);
    char exe[PATH_MAX], path[PATH_MAX + 16];
    struct stat st;
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);

    if (n <= 0)
        return 0;
    exe[n] = '\0';
    snprintf(path, sizeof path, "%.*s/demo.env", (int)(strrchr(exe, '/') - exe), exe);
    if (lstat(path, &st) < 0)
        return 0;
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) != 0)
        return err_set(err, ERR_USAGE, "%s must be a file of the caller with mode 0600", path);
    if (fs_read(path, &text, err) < 0)
        return -1;
    for (const char *p = text.data; p && *p;) {
        size_t len = strcspn(p, "\n");
        take_line(t, p, len);
        p += len + (p[len] == '\n');
    }
    secret_wipe(text.data, text.len);
    return 0;
}

static int find_target(struct target *t, struct err *err)
{
    const char *url = getenv("CLOISTER_URL"), *key = getenv("CLOISTER_KEY");

    t->url = url ? strdup(url) : NULL;
    t->key = key ? strdup(key) : NULL;
    if ((!t->url || !t->key) && read_demo(t, err) < 0)
        return -1;
    if (!t->url || !t->key)
        return err_set(err, ERR_USAGE, "set CLOISTER_URL and CLOISTER_KEY");
    if (strncmp(t->url, "http://", 7) != 0 && strncmp(t->url, "https://", 8) != 0)
        return err_set(err, ERR_USAGE, "CLOISTER_URL must start with http:// or https://");
    return 0;
}

static int call(const struct client_request *req, int *status, json_t **ret, struct err *err)
{
    CLEANUP(buf_free) struct buf answer = BUF_INIT(ANSWER_MAX);

    if (client_call(req, status, &answer, err) < 0)
        return -1;
    if (json_parse(answer.data ? answer.data : "", answer.len, ret, err) < 0)
        return err_wrap(err, "the answer of %s", req->base);
    return 0;
}

static int refused(const json_t *problem, struct err *err)
{
    const char *title = json_str(problem, "title"), *detail = json_str(problem, "detail");
    json_t *errors = json_object_get(problem, "errors"), *first = json_array_get(errors, 0);

    if (first)
        return err_set(err, ERR_CONFLICT, "%s %s: %s", title ? title : "refused", json_str(first, "pointer"),
                       json_str(first, "detail"));
    return err_set(err, ERR_CONFLICT, "%s", detail ? detail : title ? title : "refused");
}

/* The caller as speaker: the account's name. */
static json_t *make_body(const struct cli *cli)
{
    struct passwd *pw = getpwuid(getuid());
    const char *name = pw ? pw->pw_name : "operator";

    return json_pack("{s:s, s:s, s:{s:s, s:s}}", "channel", cli->words[0], "text", cli->words[1], "speaker",
                     "id", name, "name", name);
}

/* Asks until the turn has ended, telling each new state. */
static int follow(const struct target *t, json_t **turn, struct err *err)
{
    char path[128], told[32] = "";

    for (;;) {
        const char *status = json_str(*turn, "status"), *id = json_str(*turn, "id");
        struct client_request req = {
            .method = "GET", .base = t->url, .path = path, .key = t->key, .timeout_ms = 30000};
        json_t *next = NULL;
        int code = 0;
        if (!status || !id || strlen(id) > 64)
            return err_set(err, ERR_UPSTREAM, "the answer of %s is no turn", t->url);
        if (strcmp(told, status) != 0) {
            snprintf(told, sizeof told, "%s", status);
            cli_print_text(stderr, id);
            fputs(": ", stderr);
            cli_print_text(stderr, told);
            fputc('\n', stderr);
        }
        if (strcmp(status, "queued") != 0 && strcmp(status, "running") != 0)
            return 0;
        clock_sleep_ms(POLL_MS);
        snprintf(path, sizeof path, "/v1/turns/%s", id);
        if (call(&req, &code, &next, err) < 0)
            return -1;
        if (code != 200) {
            refused(next, err);
            json_decref(next);
            return -1;
        }
        json_decref(*turn);
        *turn = next;
    }
}

static int print_turn(const struct cli *cli, const json_t *turn)
{
    const char *text = json_str(json_object_get(turn, "reply"), "text");
    const json_t *error = json_object_get(turn, "error");

    if (cli->json) {
        json_dumpf(turn, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
        fputc('\n', stdout);
    } else if (text) {
        cli_print_text(stdout, text);
        fputc('\n', stdout);
    }
    const char *code = json_str(error, "code"), *detail = json_str(error, "detail");
    if (!code)
        return 0;
    fputs("cloister: ", stderr);
    cli_print_text(stderr, code);
    fputs(": ", stderr);
    cli_print_text(stderr, detail ? detail : "");
    fputc('\n', stderr);
    return 1;
}

int cmd_turn(const struct cli *cli)
{
    CLEANUP(target_free) struct target t = {0};
    CLEANUP(json_free) json_t *body = make_body(cli);
    CLEANUP(json_free) json_t *turn = NULL;
    CLEANUP(free_str) char *text = NULL;
    struct err err;
    int status = 0;

    if (!body) {
        err_set(&err, ERR_USAGE, "channel and text must be UTF-8");
        return cli_fail(&err);
    }
    if (find_target(&t, &err) < 0 || json_text(body, &text, &err) < 0)
        return cli_fail(&err);
    struct client_request req = {.method = "POST",
                                 .base = t.url,
                                 .path = "/v1/turns",
                                 .key = t.key,
                                 .body = text,
                                 .header = "Prefer: respond-async"};
    if (call(&req, &status, &turn, &err) < 0)
        return cli_fail(&err);
    if (status != 200 && status != 202) {
        refused(turn, &err);
        return cli_fail(&err);
    }
    if (follow(&t, &turn, &err) < 0)
        return cli_fail(&err);
    return print_turn(cli, turn);
}

int cmd_version(const struct cli *cli)
{
    (void)cli;
    printf("cloister %s (build %s)\n", CLOISTER_VERSION, build_id());
    return 0;
}
