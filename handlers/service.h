/* handlers/service.h: what the handlers need from the rest of the house, and what they give to the app.
 * Handlers never see pool, broker, sandbox or docker: the app lends them the few questions they may ask.
 * All pointers are borrowed and outlive the servers; everything may be called from any server thread. */
#pragma once

#include "auth/known.h"
#include "config/config.h"
#include "events/bus.h"
#include "http/http.h"
#include "queue/queue.h"
#include "storage/db.h"

#include <stdbool.h>

#define SERVICE_REASON_SIZE 160

/* Lent by the app; `host` goes back as the first argument. Quick, never blocking. */
struct service_host {
    void *host;
    /* True when turns can run; else `reason` is "word: sentence" (engine_unavailable, image_missing,
     * engine_error, disk_full, database, draining, starting). */
    bool (*ready)(void *host, char reason[SERVICE_REASON_SIZE]);
    bool (*has_room)(void *host);                          /* false: new turns are refused (disk_full) */
    bool (*stop_channel)(void *host, const char *channel); /* aborts the running turn; false: none runs */
    bool (*cancel_turn)(void *host, const char *turn_id);  /* aborts a running turn; false: it does not run */
    bool (*turn_alive)(void *host, const char *turn_id);   /* its container is not proven dead yet */
    bool (*blocked)(void *host, const char *channel);      /* its last container is not proven dead yet */
};

/* http_config.context of both servers. */
struct service {
    struct db *db;
    struct known *keys;
    struct queue *queue;
    struct bus *bus;
    const struct config *config;
    const char *build; /* build id in hex */
    struct service_host host;
};

/* The API over TCP: keys and scopes. */
extern const struct http_route service_routes[];
int service_authorize(struct http_req *req, const struct http_route *route, struct err *err);
/* The admin socket: the same resources and /v1/keys, for root and the service's account (SO_PEERCRED). */
extern const struct http_route admin_routes[];
int admin_authorize(struct http_req *req, const struct http_route *route, struct err *err);
