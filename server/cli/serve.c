/* serve and check */
#include "app.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/id.h"
#include "cli/cli.h"
#include "notices.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int cmd_serve(const struct cli *cli)
{
    CLEANUP(config_free_p) struct config *config = NULL;
    CLEANUP(roots_free) struct roots roots = {0};
    struct json_faults faults = {0};
    struct err err;

    if (cli_load(cli, &config) < 0)
        return 1;
    if (geteuid() == 0 || getegid() == 0) {
        err_set(&err, ERR_CONFIG, "the service does not run as root: start it as an account of its own");
        return cli_fail(&err);
    }
    if (roots_check(config, geteuid(), &roots, &faults, &err) < 0) {
        cli_print_faults(cli->config_path, &faults);
        json_faults_free(&faults);
        return 1;
    }
    return app_serve(config, &roots, &err) < 0 ? cli_fail(&err) : 0;
}

/* The engine as the service would use it: one probe container against the specification. Its folders lie in
 * run_root where that is usable, so that an error there does not hide one here. */
static int check_engine(const struct config *config, const struct roots *roots, struct err *err)
{
    char dir[PATH_MAX], broker[PATH_MAX + 2], workspace[PATH_MAX + 2], tag[ID_HEX_128];
    struct sandbox *sandbox = NULL;

    id_hex(tag, 16);
    snprintf(dir, sizeof dir, "%s/check-XXXXXX", roots->run ? roots->run : "/tmp");
    if (!mkdtemp(dir))
        return err_errno(err, errno, "make the folder of the probe %s", dir);
    snprintf(broker, sizeof broker, "%s/b", dir);
    snprintf(workspace, sizeof workspace, "%s/w", dir);
    int rc = mkdir(broker, 0700) < 0 || mkdir(workspace, 0700) < 0 ? err_errno(err, errno, "%s", dir) : 0;
    if (rc == 0)
        rc = app_sandbox(config, tag, tag, &sandbox, err);
    if (rc == 0)
        rc = sandbox_prepare(sandbox, broker, workspace, err);
    sandbox_free(sandbox);
    rmdir(broker);
    rmdir(workspace);
    rmdir(dir);
    return rc;
}

/* The whole state, page by page and index by index; also beside a running server. */
static int check_state(const struct roots *roots, struct err *err)
{
    struct db *db = NULL;

    if (db_open(roots->state_file, DB_READ, &db, err) < 0)
        return -1;
    int rc = db_integrity(db, true, err);
    db_close(db);
    return rc;
}

/* Tries everything that can be tried, and counts what is wrong. */
static unsigned check_all(const struct cli *cli, const struct config *config)
{
    CLEANUP(roots_free) struct roots roots = {0};
    CLEANUP(broker_env_free_p) struct broker_env *env = NULL;
    struct json_faults faults = {0};
    struct err err;
    unsigned wrong = 0;

    if (become_account(config->state_file, &err) < 0) {
        cli_fail(&err);
        wrong++;
    }
    if (roots_check(config, geteuid(), &roots, &faults, &err) < 0) {
        cli_print_faults(cli->config_path, &faults);
        wrong += (unsigned)faults.total;
        json_faults_free(&faults);
    }
    if (app_broker_env(config, &env, &err) < 0) {
        cli_fail(&err);
        wrong++;
    }
    if (cli->state && roots.state_file && check_state(&roots, &err) < 0) {
        cli_fail(&err);
        wrong++;
    }
    if (geteuid() != 0 && check_engine(config, &roots, &err) < 0) {
        err_wrap(&err, "engine %s", config->engine_socket);
        cli_fail(&err);
        wrong++;
    }
    return wrong;
}

static void note(const char *sentence)
{
    fprintf(stderr, "note: %s\n", sentence);
}

int cmd_check(const struct cli *cli)
{
    CLEANUP(config_free_p) struct config *config = NULL;

    if (cli_load(cli, &config) < 0)
        return 1;
    unsigned wrong = check_all(cli, config);
    notices_each(config, note);
    if (wrong > 0) {
        fprintf(stderr, "%s: %u errors\n", cli->config_path, wrong);
        return 1;
    }
    printf("%s: all is well\n", cli->config_path);
    return 0;
}
