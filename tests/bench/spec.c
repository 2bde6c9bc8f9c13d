/* Prints the create body of a sealed container as the service makes it, for the bench's own bare Engine
 * cycle: bench_spec IMAGE_ID BROKER_DIR WORKSPACE_DIR UID GID SLOT. */
#include "sandbox/spec.h"
#include "sandbox/seccomp.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    CLEANUP(json_free) json_t *profile = NULL;
    CLEANUP(json_free) json_t *body = NULL;
    CLEANUP(free_str) char *seccomp = NULL;
    char name[64];
    struct err err;

    if (argc != 7) {
        fprintf(stderr, "usage: bench_spec IMAGE_ID BROKER_DIR WORKSPACE_DIR UID GID SLOT\n");
        return 2;
    }
    snprintf(name, sizeof name, "%s%s", BOX_NAME_PREFIX, argv[6]);
    struct box_spec spec = {.name = name,
                            .image_id = argv[1],
                            .broker_dir = argv[2],
                            .workspace_dir = argv[3],
                            .installation = "bench",
                            .boot = "bench",
                            .slot = argv[6],
                            .uid = (uid_t)strtoul(argv[4], NULL, 10),
                            .gid = (gid_t)strtoul(argv[5], NULL, 10),
                            .memory_mb = 512,
                            .cpus = 1,
                            .pids = 64,
                            .nofile = 256,
                            .tmp_mb = 64};
    if (seccomp_profile(SECCOMP_NATIVE, &profile, &err) < 0 || json_text(profile, &seccomp, &err) < 0 ||
        spec_body(&spec, seccomp, &body, &err) < 0) {
        fprintf(stderr, "bench_spec: %s\n", err.text);
        return 1;
    }
    json_dumpf(body, stdout, JSON_COMPACT);
    return 0;
}
