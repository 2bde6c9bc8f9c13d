/* cli/cli.h: the sub-commands and what they share. Exit codes: 0 done, 1 failed, 2 used wrongly. */
#pragma once

#include "base/json.h"
#include "config/config.h"
#include "config/roots.h"
#include "storage/db.h"

#include <stdbool.h>
#include <stdio.h>

#define DEFAULT_CONFIG "/etc/cloister/cloister.yaml"
#define CLI_LIST_MAX   64

/* A sub-command's words, sorted out. Borrowed from argv. */
struct cli {
    const char *config_path;
    bool json, state;
    const char *words[8]; /* without the command's own name */
    int word_count;
    const char *scopes[CLI_LIST_MAX], *channels[CLI_LIST_MAX];
    int scope_count, channel_count;
};

struct command {
    const char *name;    /* "key create" */
    const char *words;   /* "NAME" */
    int least, most;     /* how many words */
    const char *options; /* letters of the options it knows, from the table of options */
    const char *summary;
    int (*run)(const struct cli *cli);
};

/* Finds and runs the command; prints help and usage errors. */
int cli_main(int argc, char **argv);

int cmd_serve(const struct cli *cli);
int cmd_check(const struct cli *cli);
int cmd_key_create(const struct cli *cli);
int cmd_key_list(const struct cli *cli);
int cmd_key_revoke(const struct cli *cli);
int cmd_channel_on(const struct cli *cli);
int cmd_channel_off(const struct cli *cli);
int cmd_channel_status(const struct cli *cli);
int cmd_channel_list(const struct cli *cli);
int cmd_channel_reset(const struct cli *cli);
int cmd_channel_stop(const struct cli *cli);
int cmd_backup(const struct cli *cli);
int cmd_turn(const struct cli *cli);
int cmd_version(const struct cli *cli);

/* common.c */
/* "cloister: …" on standard error, control characters escaped; returns 1. */
int cli_fail(const struct err *err);
/* Text from elsewhere on a stream, control characters escaped except line feed and tab. */
void cli_print_text(FILE *out, const char *text);
/* Loads the configuration and prints every fault. */
MUST_USE int cli_load(const struct cli *cli, struct config **ret);
/* Prints faults, one per line: pointer, then what is wrong. */
void cli_print_faults(const char *path, const struct json_faults *faults);

/* The state of a command that reads or changes it, as the service's account: through the admin socket of a
 * running server, or else on the database itself, under the lock when it writes. */
struct session {
    struct config *config;
    struct roots roots;
    bool online;   /* the admin socket answers */
    int lock;      /* -1: none */
    struct db *db; /* open when not online */
};
static inline void session_init(struct session *s)
{
    *s = (struct session){.lock = -1};
}
/* Prints what is wrong and returns -1; session_close is due in any case. A process of root becomes the
 * account that owns the state first. */
MUST_USE int session_open(const struct cli *cli, enum db_mode mode, struct session *s);
/* The same for commands that only read rows: the database read-only, server or not. */
MUST_USE int session_open_reading(const struct cli *cli, struct session *s);
void session_close(struct session *s);
/* One request to the admin socket; an answer of 400 and above becomes an error with the problem's sentence.
 * *ret may be NULL when the answer has no body. */
MUST_USE int session_call(const struct session *s, const char *method, const char *path, const json_t *body,
                          json_t **ret, struct err *err);
/* Becomes the owner of the state's folder when running as root; ERR_CONFIG when that is root itself, or when
 * this is neither root nor the owner. */
MUST_USE int become_account(const char *state_file, struct err *err);
