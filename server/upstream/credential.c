#include "upstream/credential.h"

#include "base/fs.h"
#include "base/limits.h"
#include "base/proc.h"

#include <string.h>

#define COMMAND_TIMEOUT_MS 10000
#define COMMAND_ARGS       64

struct credential_source {
    char *path;          /* of the file, else NULL */
    struct secret value; /* from the environment, else empty */
    char **argv;         /* of the command, NULL-terminated, else NULL */
};

static int wrong_length(struct err *err)
{
    return err_set(err, ERR_CONFIG, "a credential has %d to %d characters", LIMIT_CREDENTIAL_MIN,
                   LIMIT_CREDENTIAL_MAX);
}

/* Length without the line breaks at the end, or 0 with an error that does not hold the value. */
static size_t checked_length(const char *data, size_t len, struct err *err)
{
    while (len > 0 && (data[len - 1] == '\n' || data[len - 1] == '\r'))
        len--;
    if (len < LIMIT_CREDENTIAL_MIN || len > LIMIT_CREDENTIAL_MAX) {
        wrong_length(err);
        return 0;
    }
    for (size_t i = 0; i < len; i++) {
        if (data[i] <= 0x20 || data[i] >= 0x7F) {
            err_set(err, ERR_CONFIG, "a credential has printable ASCII characters only, without spaces");
            return 0;
        }
    }
    return len;
}

static int source_new(struct credential_source **ret, struct err *err)
{
    *ret = calloc(1, sizeof **ret);
    return *ret ? 0 : err_no_memory(err);
}

int credential_from_file(const char *path, struct credential_source **ret, struct err *err)
{
    CLEANUP(credential_source_free_p) struct credential_source *source = NULL;

    if (path[0] != '/')
        return err_set(err, ERR_CONFIG, "the path of a credential file must be absolute");
    if (source_new(&source, err) < 0)
        return -1;
    source->path = strdup(path);
    if (!source->path)
        return err_no_memory(err);
    *ret = STEAL(source);
    return 0;
}

int credential_from_value(const char *name, const char *value, struct credential_source **ret,
                          struct err *err)
{
    CLEANUP(credential_source_free_p) struct credential_source *source = NULL;
    size_t len = checked_length(value, strlen(value), err);

    if (len == 0)
        return err_wrap(err, "%s", name);
    if (source_new(&source, err) < 0 || secret_set(&source->value, value, len, err) < 0)
        return -1;
    *ret = STEAL(source);
    return 0;
}

int credential_from_command(char *const argv[], struct credential_source **ret, struct err *err)
{
    CLEANUP(credential_source_free_p) struct credential_source *source = NULL;
    size_t n = 0;

    if (!argv[0] || argv[0][0] != '/')
        return err_set(err, ERR_CONFIG, "the command for a credential must start with an absolute path");
    while (argv[n])
        n++;
    if (n > COMMAND_ARGS)
        return err_set(err, ERR_CONFIG, "the command for a credential has more than %d words", COMMAND_ARGS);
    if (source_new(&source, err) < 0)
        return -1;
    source->argv = calloc(n + 1, sizeof *source->argv);
    if (!source->argv)
        return err_no_memory(err);
    for (size_t i = 0; i < n; i++) {
        source->argv[i] = strdup(argv[i]);
        if (!source->argv[i])
            return err_no_memory(err);
    }
    *ret = STEAL(source);
    return 0;
}

void credential_source_free(struct credential_source *source)
{
    if (!source)
        return;
    for (char **arg = source->argv; arg && *arg; arg++)
        free(*arg);
    free(source->argv);
    free(source->path);
    secret_free(&source->value);
    free(source);
}

static void wipe_buf(struct buf *b)
{
    if (b->data)
        secret_wipe(b->data, b->cap);
    buf_free(b);
}

int credential_read(const struct credential_source *source, int cancel_fd, struct secret *ret,
                    struct err *err)
{
    CLEANUP(wipe_buf) struct buf text = BUF_INIT(LIMIT_CREDENTIAL_MAX + 2);
    const char *from = source->path ? source->path : source->argv ? source->argv[0] : NULL;

    if (!from)
        return secret_set(ret, source->value.data, source->value.len, err);
    /* All at once, so that growing leaves no unwiped copy behind. */
    if (buf_reserve(&text, text.max, err) < 0)
        return -1;
    int rc = source->path ? fs_read(source->path, &text, err)
                          : proc_run_cancel(source->argv, COMMAND_TIMEOUT_MS, cancel_fd, &text, err);
    if (rc < 0 && err->code == ERR_TOO_LARGE)
        wrong_length(err);
    if (rc < 0)
        return err_wrap(err, "credential from %s", from);
    size_t len = checked_length(text.data, text.len, err);
    if (len == 0)
        return err_wrap(err, "credential from %s", from);
    return secret_set(ret, text.data, len, err);
}
