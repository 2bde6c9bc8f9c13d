#include "config/roots.h"

#include "base/fs.h"
#include "base/limits.h"

#include <stdio.h>
#include <string.h>

#define SLOT_PART "/0123456789abcdef0123456789abcdef/broker.sock"

void roots_free(struct roots *r)
{
    free(r->run);
    free(r->workspaces);
    free(r->state_dir);
    free(r->state_file);
    free(r->admin_socket);
    *r = (struct roots){0};
}

static void check_dir(const char *pointer, const char *what, const char *path, uid_t uid, char **ret,
                      struct json_faults *faults)
{
    struct err err;

    if (fs_private_dir(what, path, uid, ret, &err) < 0)
        json_fault(faults, pointer, "%s", err.text);
}

/* /a/b/c.db → the folder /a/b and the name; the file itself need not exist. */
static int check_state(const struct config *c, uid_t uid, struct roots *r, struct json_faults *faults,
                       struct err *err)
{
    const char *slash = strrchr(c->state_file, '/');
    CLEANUP(free_str) char *dir = strndup(c->state_file, (size_t)(slash - c->state_file));
    struct err why;

    if (!dir)
        return err_no_memory(err);
    if (slash == c->state_file || slash[1] == '\0' || strcmp(slash, "/.") == 0 || strcmp(slash, "/..") == 0) {
        json_fault(faults, "/state_file", "must name a file inside a folder of its own");
        return 0;
    }
    check_dir("/state_file", "the state's folder", dir, uid, &r->state_dir, faults);
    if (!r->state_dir)
        return 0;
    if (asprintf(&r->state_file, "%s%s", r->state_dir, slash) < 0) {
        r->state_file = NULL;
        return err_no_memory(err);
    }
    if (asprintf(&r->admin_socket, "%s/admin.sock", r->state_dir) < 0) {
        r->admin_socket = NULL;
        return err_no_memory(err);
    }
    if (fs_private_file("the state file", r->state_file, uid, &why) < 0)
        json_fault(faults, "/state_file", "%s", why.text);
    if (strlen(r->admin_socket) > LIMIT_SOCKET_PATH)
        json_fault(faults, "/state_file", "the admin socket beside it has a path of more than %d characters",
                   LIMIT_SOCKET_PATH);
    return 0;
}

static void check_apart(const struct roots *r, struct json_faults *faults)
{
    if (r->run && r->workspaces && (fs_contains(r->run, r->workspaces) || fs_contains(r->workspaces, r->run)))
        json_fault(faults, "/workspace_root", "run_root and workspace_root must not lie inside one another");
    if (r->state_file && r->run && fs_contains(r->run, r->state_file))
        json_fault(faults, "/state_file", "the state must lie outside run_root");
    if (r->state_file && r->workspaces && fs_contains(r->workspaces, r->state_file))
        json_fault(faults, "/state_file", "the state must lie outside workspace_root");
    if (r->state_dir && r->run && fs_contains(r->state_dir, r->run))
        json_fault(faults, "/run_root", "must lie outside the state's folder");
    if (r->state_dir && r->workspaces && fs_contains(r->state_dir, r->workspaces))
        json_fault(faults, "/workspace_root", "must lie outside the state's folder");
    if (r->run && strlen(r->run) + strlen(SLOT_PART) > LIMIT_SOCKET_PATH)
        json_fault(faults, "/run_root",
                   "has more than %zu characters, a broker's socket path would be too long",
                   LIMIT_SOCKET_PATH - strlen(SLOT_PART));
}

int roots_check(const struct config *c, uid_t uid, struct roots *ret, struct json_faults *faults,
                struct err *err)
{
    size_t before = faults->total, first = json_array_size(faults->list);

    check_dir("/run_root", "run_root", c->run_root, uid, &ret->run, faults);
    check_dir("/workspace_root", "workspace_root", c->workspace_root, uid, &ret->workspaces, faults);
    if (check_state(c, uid, ret, faults, err) < 0)
        return -1;
    check_apart(ret, faults);
    config_locate(c, faults, first);
    if (faults->total > before)
        return err_set(err, ERR_CONFIG, "%zu faults in the roots", faults->total - before);
    return 0;
}
