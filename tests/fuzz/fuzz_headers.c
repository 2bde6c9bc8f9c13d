/* What single header fields may do: trace context, request id, Prefer, conditions on entity tags, and the
 * bearer token, in which '~' stands for a real key, against a real database. */
#include "support/fuzz.h"

#include "auth/auth.h"
#include "base/secret.h"
#include "handlers/etag.h"
#include "handlers/prefer.h"
#include "http/trace.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static struct db *db;
static struct known *keys;
static char id[KEY_ID_SIZE], token[KEY_TOKEN_SIZE];

static int make_key(struct store *st, void *arg, struct err *err)
{
    CLEANUP(json_free) json_t *globs = json_pack("[s]", "web:*");

    (void)arg;
    return keys_create(st, "fuzz", SCOPE_TURNS, globs, 1, id, token, err);
}

static void close_db(void)
{
    known_free(keys);
    db_close(db);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    char path[128];
    struct err err = {0};

    (void)argc;
    (void)argv;
    PROPERTY(secret_init(&err) == 0, "%s", err.text);
    snprintf(path, sizeof path, "%s/state.db", fuzz_folder());
    PROPERTY(db_open(path, DB_WRITE, &db, &err) == 0, "%s", err.text);
    PROPERTY(known_new(db, &keys, &err) == 0, "%s", err.text);
    atexit(close_db);
    PROPERTY(db_write(db, make_key, NULL, &err) == 0, "%s", err.text);
    return 0;
}

static bool is_hex(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isdigit((unsigned char)s[i]) && (s[i] < 'a' || s[i] > 'f'))
            return false;
    return true;
}

static void check_trace(const char *value)
{
    char out[TRACEPARENT_SIZE], again[TRACEPARENT_SIZE];

    memset(out, 'x', sizeof out);
    trace_continue(value, out);
    PROPERTY(strlen(out) == 55 && strncmp(out, "00-", 3) == 0 && is_hex(out + 3, 32) && out[35] == '-' &&
                 is_hex(out + 36, 16) && out[52] == '-' && is_hex(out + 53, 2),
             "%s", out);
    PROPERTY(strspn(out + 3, "0") < 32 && strspn(out + 36, "0") < 16, "an id of zeros: %s", out);
    trace_continue(out, again);
    PROPERTY(memcmp(out, again, 36) == 0 && memcmp(out + 52, again + 52, 4) == 0,
             "its own trace is not continued");
    PROPERTY(memcmp(out + 36, again + 36, 16) != 0, "the parent id stays");
}

static void check_request_id(const char *value)
{
    char out[REQUEST_ID_SIZE];
    size_t len = strlen(value);

    request_id_accept(value, out);
    for (const char *p = out; *p; p++)
        PROPERTY(isalnum((unsigned char)*p) || strchr("._-", *p), "%s", out);
    bool fine = len >= 1 && len <= 128;
    for (size_t i = 0; i < len; i++)
        fine = fine && strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-", value[i]);
    if (fine)
        PROPERTY(strcmp(out, value) == 0, "another id");
    else
        PROPERTY(strncmp(out, "req_", 4) == 0 && strlen(out) == 36, "%s", out);
}

static void check_prefer(const char *value)
{
    struct prefer p = prefer_parse(value);

    PROPERTY(p.wait_s >= PREFER_END && p.wait_s <= PREFER_WAIT_MAX_S, "%d s", p.wait_s);
    PROPERTY((p.applied == NULL) == (p.wait_s == PREFER_END), "%d s without a preference", p.wait_s);
    if (!p.applied)
        return;
    PROPERTY(strcmp(p.applied, "wait") == 0 || strcmp(p.applied, "respond-async") == 0, "%s", p.applied);
    PROPERTY(strcasestr(value, p.applied), "%s was not asked for", p.applied);
}

/* Any list that holds the tag or is "*" fits, no other; a channel that is not there fits no If-Match. */
static void check_etag(const char *value)
{
    struct channel c = {.version = 3, .created_ms = 0x18c2f};
    char tag[ETAG_SIZE];
    struct err err = {0};

    etag_of(&c, tag);
    bool has = false;
    CLEANUP(free_str) char *copy = strdup(value);
    for (char *save = NULL, *word = strtok_r(copy, " \t,", &save); word; word = strtok_r(NULL, " \t,", &save))
        has = has || strcmp(word, tag) == 0;
    bool any = strcmp(value, "*") == 0;
    PROPERTY((etag_check(value, NULL, &c, &err) == 0) == (has || any), "If-Match: %s", value);
    PROPERTY((etag_check(NULL, value, &c, &err) == 0) == !(has || any), "If-None-Match: %s", value);
    PROPERTY(etag_check(value, NULL, NULL, &err) < 0 && err.code == ERR_PRECONDITION, "If-Match of nothing");
    PROPERTY(etag_check(NULL, value, NULL, &err) == 0, "If-None-Match of nothing");
}

static bool is_bearer(const char *value)
{
    if (strncasecmp(value, "bearer ", 7) != 0)
        return false;
    value += 7;
    return strcmp(value + strspn(value, " "), token) == 0;
}

static void check_bearer(const char *value)
{
    CLEANUP(buf_free) struct buf header = BUF_INIT(1 << 20);
    CLEANUP(principal_free_p) struct principal *caller = NULL;
    struct err err = {0};

    for (const char *p = value; *p; p++)
        PROPERTY((*p == '~' ? buf_adds(&header, token, &err) : buf_add(&header, p, 1, &err)) == 0, "%s",
                 err.text);
    const char *text = header.data ? header.data : "";
    int rc = principal_from_header(keys, text, &caller, &err);
    PROPERTY((rc == 0) == is_bearer(text), "%s: %s", rc == 0 ? "let in" : "kept out", text);
    if (rc < 0) {
        PROPERTY(!caller && err.code == ERR_UNAUTHORIZED, "%s", err_name(err.code));
        return;
    }
    PROPERTY(strcmp(caller->key_id, id) == 0 && caller->scopes == SCOPE_TURNS && caller->globs,
             "somebody else");
    PROPERTY(auth_allows(caller, SCOPE_TURNS, SCOPE_TURNS_READ, "web:x", id), "own turn");
    PROPERTY(!auth_allows(caller, SCOPE_TURNS, SCOPE_TURNS_READ, "api:x", id), "foreign channel");
}

/* A plain reading of what '*' means. */
static bool glob_fits(const char *glob, const char *text)
{
    if (*glob == '\0')
        return *text == '\0';
    if (*glob != '*')
        return *glob == *text && glob_fits(glob + 1, text + 1);
    return glob_fits(glob + 1, text) || (*text && glob_fits(glob, text + 1));
}

/* "glob\ntext", short and with few stars, since the plain reading takes its time. */
static void check_glob(const char *value)
{
    const char *split = strchr(value, '\n');
    unsigned stars = 0;

    if (!split || strlen(value) > 48)
        return;
    CLEANUP(free_str) char *glob = strndup(value, (size_t)(split - value));
    for (const char *p = glob; *p; p++)
        stars += *p == '*';
    if (stars <= 4)
        PROPERTY(auth_glob(glob, split + 1) == glob_fits(glob, split + 1), "%s", value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(free_str) char *value = fuzz_text(data, size);

    check_trace(value);
    check_request_id(value);
    check_prefer(value);
    check_etag(value);
    check_bearer(value);
    check_glob(value);
    return 0;
}
