#include "handlers/access.h"
#include "handlers/resources.h"
#include "handlers/views.h"
#include "http/response.h"

enum http_result turns_read(struct http_req *req)
{
    CLEANUP(turn_free_p) struct turn *turn = NULL;
    struct err err;

    if (access_turn(req, http_path_param(req, "id"), &turn, &err) < 0)
        return http_problem(req, &err, NULL);
    return http_reply_json(req, 200, turn_view(turn, auth_scope(caller_of(req), SCOPE_TURNS_READ)));
}
