/* POST /v1/turns/{id}/cancel: answers when the turn has ended and its process tree is proven dead. */
#include "base/clock.h"
#include "handlers/access.h"
#include "handlers/commit.h"
#include "handlers/resources.h"
#include "handlers/turn_wait.h"
#include "http/response.h"
#include "storage/turns.h"

#include <stdio.h>
#include <string.h>

#define PROOF_S 10 /* then 202: the death cannot be proven yet */

struct cancellation {
    struct service *sv;
    char id[TURN_ID_SIZE];
    bool alive; /* its container, when the request came */
    bool ended;
};

static int cancel_job(struct store *st, void *arg, struct err *err)
{
    struct cancellation *c = arg;

    return turns_cancel(st, c->id, c->alive, clock_wall_ms(), &c->ended, err);
}

/* On the writer thread: also when the client has gone meanwhile. */
static void cancel_committed(void *arg, const struct err *result)
{
    struct cancellation *c = arg;

    if (result->code != ERR_NONE)
        return;
    if (c->ended)
        queue_remove(c->sv->queue, c->id);
    else
        c->sv->host.cancel_turn(c->sv->host.host, c->id);
    bus_publish(c->sv->bus, c->id);
}

static enum http_result canceled(struct http_req *req, const struct err *result, void *arg)
{
    const struct cancellation *c = arg;

    if (result->code != ERR_NONE)
        return http_problem(req, result, NULL);
    return turn_wait_dead(req, c->id, PROOF_S);
}

static const struct commit_ops cancel_ops = {cancel_job, cancel_committed, canceled, free};

/* A key cancels its own turns; an admin key those of its channels. What it may not see does not exist for it.
 */
static int check_access(const struct http_req *req, const char *id, struct err *err)
{
    CLEANUP(turn_free_p) struct turn *turn = NULL;

    if (access_turn(req, id, &turn, err) < 0)
        return -1;
    if (!auth_allows(caller_of(req), SCOPE_TURNS, SCOPE_ADMIN, turn->channel, turn->key_id))
        return err_set(err, ERR_FORBIDDEN, "a key cancels its own turns only");
    return 0;
}

enum http_result turn_cancel(struct http_req *req)
{
    const char *id = http_path_param(req, "id");
    struct err err;

    if (check_access(req, id, &err) < 0)
        return http_problem(req, &err, NULL);
    struct cancellation *c = calloc(1, sizeof *c);
    if (!c) {
        err_no_memory(&err);
        return http_problem(req, &err, NULL);
    }
    c->sv = service_of(req);
    snprintf(c->id, sizeof c->id, "%s", id);
    c->alive = c->sv->host.turn_alive(c->sv->host.host, id);
    return commit(req, &cancel_ops, c);
}
