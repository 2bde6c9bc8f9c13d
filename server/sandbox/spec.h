/* sandbox/spec.h: what a sealed container is (mission.md section 2). Pure functions. */
#pragma once

#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>
#include <sys/types.h>

#define BOX_NAME_PREFIX "cloister-"
#define BOX_SLOT_HEX    32 /* hex digits of a slot: 128 bits */
#define BOX_MEMORY_MIN  64 /* MiB */
#define BOX_PIDS_MIN    8
#define BOX_LABEL_MAX   128 /* characters of the installation and of the boot */
#define BOX_LABEL_OWNER "io.cloister.installation"
#define BOX_LABEL_BOOT  "io.cloister.boot"
#define BOX_LABEL_SLOT  "io.cloister.slot"
#define BOX_BROKER_DIR  "/broker"    /* inside */
#define BOX_WORK_DIR    "/workspace" /* inside */
#define BOX_HOME        "HOME=/tmp/home"

/* All strings are borrowed. */
struct box_spec {
    const char *name;          /* "cloister-" and the slot */
    const char *image_id;      /* what the tag was resolved to */
    const char *broker_dir;    /* on the host, canonical; mounted read-only at /broker */
    const char *workspace_dir; /* on the host, canonical; mounted at /workspace */
    const char *installation, *boot, *slot;
    uid_t uid; /* of the service itself; never 0 */
    gid_t gid;
    unsigned memory_mb; /* at least 64; swap is none */
    double cpus;        /* at least 0.01 */
    unsigned pids;      /* at least 8 */
    unsigned nofile;    /* soft and hard limit, at least 16 */
    unsigned tmp_mb;    /* size of /tmp, at least 1 */
};

/* Every rule of mission.md section 2 that can be told without a daemon; ERR_CONFIG names the one broken. */
MUST_USE int spec_check(const struct box_spec *spec, struct err *err);
/* The rule of mission.md section 1 for an image: not empty, no white space, no leading '-'. ERR_CONFIG. */
MUST_USE int spec_check_image(const char *image, struct err *err);
/* 32 lower-case hex digits. */
bool spec_is_slot(const char *slot);

/* Checks, then the body of POST /containers/create. The image's own entrypoint, command and working folder
 * are left as they are: the working folder of a foreign image may be what its relative entrypoint needs, and
 * the turn names the workspace. The image's own environment stays beside HOME; nothing of the host's is
 * added. `seccomp` is the profile's text (sandbox/seccomp.h). *ret is the caller's. */
MUST_USE int spec_body(const struct box_spec *spec, const char *seccomp, json_t **ret, struct err *err);
