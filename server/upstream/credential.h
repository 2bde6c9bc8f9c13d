/* server/upstream/credential.h: where a credential comes from, read anew at each call so that it can be
 * rotated (mission.md 6). Sources do not change after they were made: reading is thread-safe. */
#pragma once

#include "base/secret.h"

struct credential_source;

/* A file, read at each call. `path` is absolute. */
MUST_USE int credential_from_file(const char *path, struct credential_source **ret, struct err *err);
/* A value that was in the environment at start (the service clears its environment). It is copied into
 * locked memory and checked here (ERR_CONFIG). `name` is the variable's, for messages. */
MUST_USE int credential_from_value(const char *name, const char *value, struct credential_source **ret,
                                   struct err *err);
/* The standard output of a command, run at each call for at most 10 s. argv is copied; argv[0] absolute. */
MUST_USE int credential_from_command(char *const argv[], struct credential_source **ret, struct err *err);
void credential_source_free(struct credential_source *source);
DEFINE_CLEANUP(struct credential_source *, credential_source_free)

/* Reads the credential: line breaks at its end are cut; LIMIT_CREDENTIAL_MIN to LIMIT_CREDENTIAL_MAX
 * printable ASCII characters without spaces, else ERR_CONFIG. A file that cannot be read, a command that
 * fails: ERR_SYSTEM or ERR_TIMEOUT. ERR_CANCELED when cancel_fd (-1: none) becomes readable while a command
 * runs. No sentence holds the value. The caller calls secret_free. */
MUST_USE int credential_read(const struct credential_source *source, int cancel_fd, struct secret *ret,
                             struct err *err);
