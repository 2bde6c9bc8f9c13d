/* handlers/turn_wait.h: answers when a turn has ended. */
#pragma once

#include "http/router.h"
#include "storage/turns.h"

/* Parks the request until the bus says that the turn changed and its row says that it ended: 200 with the
 * turn. After wait_s seconds (PREFER_END: never), or when the service stops first: 202 with the turn as it
 * is, Location and Retry-After. A caller whose key is revoked meanwhile: 401. A client that leaves frees its
 * place; the turn goes on. */
enum http_result turn_wait(struct http_req *req, const char *turn_id, int wait_s);
/* The same, but 200 only when its container is proven dead as well. */
enum http_result turn_wait_dead(struct http_req *req, const char *turn_id, int wait_s);
/* At once: 200 with a turn that has ended, otherwise 202 with the turn as given, Location and Retry-After. */
void turn_answer(struct http_req *req, const struct turn *turn, bool ended);
