#include "auth/auth.h"

#include "base/secret.h"

#include <string.h>
#include <strings.h>

void principal_free(struct principal *p)
{
    if (!p)
        return;
    json_decref(p->globs);
    free(p);
}

int principal_local(struct principal **ret, struct err *err)
{
    struct principal *p = calloc(1, sizeof *p);

    if (!p)
        return err_no_memory(err);
    p->scopes = SCOPE_ADMIN;
    *ret = p;
    return 0;
}

/* "Bearer <token>" → the token; the scheme in any case, one or more spaces. (RFC 6750) */
static const char *bearer_token(const char *authorization)
{
    if (!authorization || strncasecmp(authorization, "Bearer ", 7) != 0)
        return NULL;
    authorization += 7;
    while (*authorization == ' ')
        authorization++;
    return authorization;
}

/* The id inside "clo_<16 hex>_<64 hex>"; false when the token has another form. */
static bool token_id(const char *token, char id[KEY_ID_SIZE])
{
    size_t hex = KEY_ID_SIZE - 1;

    if (!token || strlen(token) != 4 + hex + 1 + 64 || strncmp(token, "clo_", 4) != 0 ||
        token[4 + hex] != '_')
        return false;
    if (strspn(token + 4, "0123456789abcdef") != hex || strspn(token + 5 + hex, "0123456789abcdef") != 64)
        return false;
    memcpy(id, token + 4, hex);
    id[hex] = '\0';
    return true;
}

int principal_from_header(struct known *known, const char *authorization, struct principal **ret,
                          struct err *err)
{
    const char *token = bearer_token(authorization);
    char id[KEY_ID_SIZE] = "0000000000000000";
    unsigned char hash[32];
    struct key_facts key;
    bool formed = token_id(token, id);

    secret_sha256(formed ? token : "", formed ? strlen(token) : 0, hash);
    if (known_find(known, id, &key, err) < 0)
        return -1;
    CLEANUP(json_free) json_t *globs = key.globs;
    bool same = secret_equal(hash, key.hash, sizeof hash);
    if (!formed || !globs || !same)
        return err_set(err, ERR_UNAUTHORIZED, "send Authorization: Bearer with a key that is in force");

    struct principal *p = calloc(1, sizeof *p);
    if (!p)
        return err_no_memory(err);
    memcpy(p->key_id, id, sizeof p->key_id);
    p->scopes = key.scopes;
    p->globs = json_steal(&globs);
    *ret = p;
    return 0;
}

bool auth_scope(const struct principal *p, unsigned any_of)
{
    return (p->scopes & (any_of | SCOPE_ADMIN)) != 0;
}

bool auth_glob(const char *glob, const char *text)
{
    const char *star = NULL, *mark = NULL;

    while (*text) {
        if (*glob == '*') {
            star = glob++;
            mark = text;
        } else if (*glob == *text) {
            glob++;
            text++;
        } else if (star) {
            glob = star + 1;
            text = ++mark;
        } else {
            return false;
        }
    }
    while (*glob == '*')
        glob++;
    return *glob == '\0';
}

bool auth_allows(const struct principal *p, unsigned own, unsigned others, const char *channel,
                 const char *owner)
{
    bool is_own = owner && strcmp(owner, p->key_id) == 0;
    size_t i;
    json_t *glob;

    if (!auth_scope(p, is_own ? own | others : others))
        return false;
    if (!p->globs)
        return true;
    json_array_foreach(p->globs, i, glob)
        if (auth_glob(json_string_value(glob), channel))
            return true;
    return false;
}
