#include "base/secret.h"
#include "build.h"
#include "cli/cli.h"
#include "upstream/client.h"

#include <signal.h>

/* One global init of each library, before any thread. */
int main(int argc, char **argv)
{
    struct err err;

    build_id();
    signal(SIGPIPE, SIG_IGN);
    if (secret_init(&err) < 0 || upstream_global_init(&err) < 0)
        return cli_fail(&err);
    int rc = cli_main(argc, argv);
    upstream_global_end();
    return rc;
}
