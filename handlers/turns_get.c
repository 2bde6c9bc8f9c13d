#include "handlers/access.h"
#include "handlers/resources.h"
#include "handlers/views.h"
#include "http/response.h"

struct reading {
    const char *id;
    struct turn *turn;
};

static int read_job(struct store *st, void *arg, struct err *err)
{
    struct reading *r = arg;

    return turns_get(st, r->id, &r->turn, err);
}

enum http_result turns_read(struct http_req *req)
{
    const struct principal *p = caller_of(req);
    struct reading r = {.id = http_path_param(req, "id")};
    struct err err;
    int rc = db_read(service_of(req)->db, read_job, &r, &err);
    CLEANUP(turn_free_p) struct turn *turn = r.turn;

    if (rc == 0 && !auth_allows(p, SCOPE_TURNS, SCOPE_TURNS_READ, turn->channel, turn->key_id))
        rc = err_set(&err, ERR_NOT_FOUND, "there is no such turn");
    if (rc < 0)
        return http_problem(req, &err, NULL);
    return http_reply_json(req, 200, turn_view(turn, auth_scope(p, SCOPE_TURNS_READ)));
}
