#include "handlers/access.h"

#include "http/response.h"
#include "storage/channels.h"

#include <unistd.h>

static void free_principal(void *p)
{
    principal_free(p);
}

static int check_scope(struct http_req *req, const struct http_route *route, struct principal *p,
                       struct err *err)
{
    http_set_principal(req, p, free_principal);
    if (!auth_scope(p, route->scope))
        return err_set(err, ERR_FORBIDDEN, "this key's scopes do not allow this request");
    return 0;
}

int service_authorize(struct http_req *req, const struct http_route *route, struct err *err)
{
    struct principal *p = NULL;

    if (route->scope == SCOPE_OPEN)
        return 0;
    if (principal_from_header(service_of(req)->keys, http_header(req, "Authorization"), &p, err) < 0) {
        if (err->code == ERR_UNAUTHORIZED)
            http_header_add(req, "WWW-Authenticate", "Bearer realm=\"cloister\"");
        return -1;
    }
    return check_scope(req, route, p, err);
}

/* The kernel says who calls: root or the service's own account. */
int admin_authorize(struct http_req *req, const struct http_route *route, struct err *err)
{
    struct principal *p = NULL;
    uid_t uid;

    if (http_peer_uid(req, &uid, err) < 0)
        return -1;
    if (uid != 0 && uid != geteuid())
        return err_set(err, ERR_FORBIDDEN, "only root and the service's account may use this socket");
    if (principal_local(&p, err) < 0)
        return -1;
    return check_scope(req, route, p, err);
}

int access_channel(const struct http_req *req, const char *key, unsigned scopes, struct err *err)
{
    if (channel_key_check(key, err) < 0)
        return -1;
    if (!auth_allows(caller_of(req), scopes, scopes, key, NULL))
        return err_set(err, ERR_NOT_FOUND, "there is no such channel");
    return 0;
}

struct look {
    const char *id;
    struct turn *turn;
};

static int look_job(struct store *st, void *arg, struct err *err)
{
    struct look *l = arg;

    return turns_get(st, l->id, &l->turn, err);
}

int access_turn(const struct http_req *req, const char *id, struct turn **ret, struct err *err)
{
    struct look l = {.id = id};
    int rc = db_read(service_of(req)->db, look_job, &l, err);
    CLEANUP(turn_free_p) struct turn *turn = l.turn;

    if (rc < 0)
        return -1;
    if (!auth_allows(caller_of(req), SCOPE_TURNS, SCOPE_TURNS_READ, turn->channel, turn->key_id))
        return err_set(err, ERR_NOT_FOUND, "there is no such turn");
    *ret = STEAL(turn);
    return 0;
}
