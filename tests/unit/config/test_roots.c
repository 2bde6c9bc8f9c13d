#include "config/roots.h"

#include "rig.h"

#include "base/limits.h"

#include <errno.h>
#include <fcntl.h>

struct home {
    char *dir;
    char run[200], workspaces[200], state[200], state_file[220];
    struct config config;
};

/* run, workspaces and state below a fresh folder, all as they should be. */
static struct home *make_home(void)
{
    struct home *h = calloc(1, sizeof *h);

    h->dir = scratch_dir();
    snprintf(h->run, sizeof h->run, "%s/r", h->dir);
    snprintf(h->workspaces, sizeof h->workspaces, "%s/w", h->dir);
    snprintf(h->state, sizeof h->state, "%s/s", h->dir);
    snprintf(h->state_file, sizeof h->state_file, "%s/c.db", h->state);
    cr_assert(mkdir(h->run, 0700) == 0 && mkdir(h->workspaces, 0700) == 0 && mkdir(h->state, 0700) == 0);
    h->config.run_root = h->run;
    h->config.workspace_root = h->workspaces;
    h->config.state_file = h->state_file;
    return h;
}

static void free_home(struct home *h)
{
    scratch_remove(h->dir);
    free(h);
}

/* The faults as "pointer: detail" lines; "" when there is none. */
static const char *check(const struct home *h)
{
    static char out[8192];
    struct json_faults faults = {0};
    struct roots roots = {0};
    struct err err = {0};
    json_t *fault;
    size_t i;

    out[0] = '\0';
    int rc = roots_check(&h->config, getuid(), &roots, &faults, &err);
    cr_assert_eq(rc<0, faults.total> 0);
    cr_assert(rc == 0 || err.code == ERR_CONFIG);
    json_array_foreach(faults.list, i, fault) {
        size_t len = strlen(out);
        snprintf(out + len, sizeof out - len, "%s: %s\n", json_str(fault, "pointer"),
                 json_str(fault, "detail"));
    }
    roots_free(&roots);
    json_faults_free(&faults);
    return out;
}

static void says(const struct home *h, const char *pointer, const char *part)
{
    const char *got = check(h);
    char *at = strstr(got, pointer), *end = at ? strchr(at, '\n') : NULL;

    cr_assert(at && end, "no %s in \"%s\"", pointer, got);
    *end = '\0';
    cr_assert(strstr(at, part), "\"%s\" has no \"%s\"", at, part);
}

Test(roots, good_ones_are_canonical)
{
    struct home *h = make_home();
    struct roots r = {0};
    struct json_faults faults = {0};
    struct err err;
    char link[220], want[260];

    snprintf(link, sizeof link, "%s/link", h->dir);
    cr_assert_eq(symlink(h->dir, link), 0);
    snprintf(link, sizeof link, "%s/link/./r/", h->dir);
    h->config.run_root = link;
    cr_assert_eq(roots_check(&h->config, getuid(), &r, &faults, &err), 0, "%s", err.text);
    cr_assert_str_eq(r.run, h->run);
    cr_assert_str_eq(r.workspaces, h->workspaces);
    cr_assert_str_eq(r.state_dir, h->state);
    cr_assert_str_eq(r.state_file, h->state_file);
    snprintf(want, sizeof want, "%s/admin.sock", h->state);
    cr_assert_str_eq(r.admin_socket, want);
    roots_free(&r);
    cr_assert_null(r.run);
    free_home(h);
}

Test(roots, each_rule_of_the_folders)
{
    struct home *h = make_home();
    char path[256];

    cr_assert_str_eq(check(h), "");
    h->config.run_root = "relative";
    says(h, "/run_root", "not an absolute path");
    h->config.run_root = "/";
    says(h, "/run_root", "must not be /");
    h->config.run_root = "/nonexistent/x";
    says(h, "/run_root", "No such file");
    snprintf(path, sizeof path, "%s/a,b", h->dir);
    cr_assert_eq(mkdir(path, 0700), 0);
    h->config.run_root = path;
    says(h, "/run_root", "comma");
    snprintf(path, sizeof path, "%s/plain", h->dir);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0700));
    says(h, "/run_root", "not a folder");
    h->config.run_root = h->run;
    cr_assert_eq(chmod(h->run, 0755), 0);
    cr_assert_eq(chmod(h->workspaces, 0750), 0);
    cr_assert_eq(chmod(h->state, 0711), 0);
    says(h, "/run_root", "mode 0755, not 0700");
    says(h, "/workspace_root", "mode 0750, not 0700");
    says(h, "/state_file", "mode 0711, not 0700");
    cr_assert(chmod(h->run, 0700) == 0 && chmod(h->workspaces, 0700) == 0 && chmod(h->state, 0700) == 0);
    if (getuid() == 0) {
        cr_assert(chown(h->workspaces, GUEST_UID, 0) == 0 && chown(h->state, GUEST_UID, 0) == 0);
        says(h, "/workspace_root", "owned by uid 61234, not by the service's uid 0");
        says(h, "/state_file", "owned by uid 61234");
    }
    free_home(h);
}

Test(roots, lie_apart_by_real_path)
{
    struct home *h = make_home();
    char path[256], link[256];

    h->config.workspace_root = h->run;
    says(h, "/workspace_root", "inside one another");
    snprintf(path, sizeof path, "%s/inner", h->run);
    cr_assert_eq(mkdir(path, 0700), 0);
    h->config.workspace_root = path;
    says(h, "/workspace_root", "inside one another");
    snprintf(link, sizeof link, "%s/link", h->dir);
    cr_assert_eq(symlink(path, link), 0);
    h->config.workspace_root = link;
    says(h, "/workspace_root", "inside one another");
    h->config.workspace_root = h->run;
    h->config.run_root = path;
    says(h, "/workspace_root", "inside one another");
    free_home(h);
}

Test(roots, the_state_is_outside_both)
{
    struct home *h = make_home();
    char dir[220], file[256], link[256];

    snprintf(dir, sizeof dir, "%s/s", h->workspaces);
    cr_assert_eq(mkdir(dir, 0700), 0);
    snprintf(file, sizeof file, "%s/c.db", dir);
    h->config.state_file = file;
    says(h, "/state_file", "outside workspace_root");
    snprintf(link, sizeof link, "%s/link", h->dir);
    cr_assert_eq(symlink(dir, link), 0);
    snprintf(file, sizeof file, "%s/c.db", link);
    says(h, "/state_file", "outside workspace_root");
    snprintf(file, sizeof file, "%s/c.db", h->run);
    says(h, "/state_file", "outside run_root");
    /* Nor may a root lie in the state's folder. */
    snprintf(file, sizeof file, "%s/c.db", h->state);
    snprintf(dir, sizeof dir, "%s/in", h->state);
    cr_assert_eq(mkdir(dir, 0700), 0);
    h->config.run_root = dir;
    says(h, "/run_root", "outside the state's folder");
    h->config.run_root = h->run;
    h->config.workspace_root = dir;
    says(h, "/workspace_root", "outside the state's folder");
    free_home(h);
}

Test(roots, the_state_file_is_a_plain_file_of_ours)
{
    struct home *h = make_home();
    char target[256];

    snprintf(target, sizeof target, "%s/elsewhere", h->dir);
    close(open(target, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    cr_assert_eq(symlink(target, h->state_file), 0);
    says(h, "/state_file", "not a regular file");
    cr_assert_eq(unlink(h->state_file), 0);
    cr_assert_eq(symlink("/nonexistent/x", h->state_file), 0);
    says(h, "/state_file", "not a regular file");
    cr_assert_eq(unlink(h->state_file), 0);
    cr_assert_eq(mkdir(h->state_file, 0700), 0);
    says(h, "/state_file", "not a regular file");
    cr_assert_eq(rmdir(h->state_file), 0);
    cr_assert_eq(mkfifo(h->state_file, 0600), 0);
    says(h, "/state_file", "not a regular file");
    cr_assert_eq(unlink(h->state_file), 0);
    close(open(h->state_file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    cr_assert_str_eq(check(h), "");
    if (getuid() == 0) {
        cr_assert_eq(chown(h->state_file, GUEST_UID, 0), 0);
        says(h, "/state_file", "owned by uid 61234");
    }
    static const char *const names[] = {"/c.db", "/", "/tmp/", "/tmp/.", "/tmp/.."};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        h->config.state_file = names[i];
        says(h, "/state_file", "must name a file inside a folder of its own");
    }
    free_home(h);
}

Test(roots, socket_paths_fit)
{
    struct home *h = make_home();
    char path[256], file[300];
    size_t slot = strlen("/0123456789abcdef0123456789abcdef/broker.sock");
    size_t longest = LIMIT_SOCKET_PATH - slot, base = strlen(h->dir) + 1;

    if (longest <= base)
        cr_skip("the temporary folder is too deep");
    for (int more = 0; more < 2; more++) {
        int n = snprintf(path, sizeof path, "%s/", h->dir);
        memset(path + n, 'r', longest - base + (size_t)more);
        path[longest + (size_t)more] = '\0';
        cr_assert_eq(mkdir(path, 0700), 0, "%s", path);
        h->config.run_root = path;
        if (more)
            says(h, "/run_root", "socket path would be too long");
        else
            cr_assert_str_eq(check(h), "");
    }
    h->config.run_root = h->run;
    for (int more = 0; more < 2; more++) {
        size_t len = LIMIT_SOCKET_PATH - strlen("/admin.sock") + (size_t)more;
        int n = snprintf(path, sizeof path, "%s/", h->dir);
        memset(path + n, 's', len - (size_t)n);
        path[len] = '\0';
        cr_assert_eq(mkdir(path, 0700), 0, "%s", path);
        snprintf(file, sizeof file, "%s/c.db", path);
        h->config.state_file = file;
        if (more)
            says(h, "/state_file", "more than 100 characters");
        else
            cr_assert_str_eq(check(h), "");
    }
    free_home(h);
}

Test(roots, all_faults_at_once)
{
    struct home *h = make_home();

    cr_assert_eq(chmod(h->run, 0755), 0);
    h->config.workspace_root = "/nonexistent/x";
    h->config.state_file = "/";
    says(h, "/run_root", "0755");
    says(h, "/workspace_root", "No such file");
    says(h, "/state_file", "must name a file");
    free_home(h);
}
