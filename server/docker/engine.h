/* docker/engine.h: the Docker Engine API over its Unix socket.
 *
 * One `struct engine` serves any number of threads: connections are pooled under its own lock, which is never
 * held during a call. Every call is bounded in time and size. libcurl must have been initialized
 * (curl_global_init) before any thread starts. */
#pragma once

#include "base/err.h"
#include "base/json.h"

#define ENGINE_API_MIN    41 /* 1.41, Engine 20.10: the first that knows all of mission.md section 2 */
#define ENGINE_API_MAX    44 /* 1.44: the newest whose answers this client was written for */
#define ENGINE_ANSWER_MAX (1024 * 1024)

struct engine;

/* Copies the path; no I/O. ERR_CONFIG when it is not absolute or longer than a socket path may be. */
MUST_USE int engine_new(const char *socket_path, struct engine **ret, struct err *err);
/* No call may be under way. Accepts NULL. */
void engine_free(struct engine *engine);
const char *engine_socket(const struct engine *engine); /* borrowed, for as long as the engine */
unsigned engine_api(const struct engine *engine);       /* minor version in use: 41..44 */

/* GET /version, and from then on the lower of the engine's API version and ENGINE_API_MAX.
 * ERR_ENGINE_AWAY as below; ERR_ENGINE when the two have no version in common. */
MUST_USE int engine_ping(struct engine *engine, int timeout_ms, struct err *err);

/* One request. `path` starts with "/" and holds no version ("/containers/json?all=1"); `body` is borrowed,
 * NULL for none. *answer becomes the JSON of the answer, NULL when it has none; the caller's; `answer` may be
 * NULL. *status is the HTTP status, or 0 when no answer came; it is set on failure too; `status` may be NULL.
 *   0                 the status is below 300 or 304 (already so)
 *   ERR_ENGINE_AWAY   no connection, connection lost, or no answer within timeout_ms. Whether the engine acts
 *                     on the request is then unknown
 *   ERR_ENGINE        an answer with another status, too large, or no JSON. The text quotes the engine and is
 *                     for the server log only (mission.md section 9) */
MUST_USE int engine_call(struct engine *engine, const char *method, const char *path, const json_t *body,
                         int timeout_ms, int *status, json_t **answer, struct err *err);

/* The same, given up as well when abort_fd (-1: none) becomes readable, which is looked at once a second at
 * least: ERR_CANCELED; whether the engine acts on the request is then unknown too. */
struct engine_bound {
    int timeout_ms, abort_fd;
};
MUST_USE int engine_call_bound(struct engine *engine, const char *method, const char *path,
                               const json_t *body, const struct engine_bound *bound, int *status,
                               json_t **answer, struct err *err);

/* Percent-encodes all but unreserved characters and "/:@" into `out`, so that a name cannot end the path. */
MUST_USE int engine_path_add(struct buf *out, const char *name, struct err *err);
