/* A server for the tests and clients that speak raw bytes. */
#pragma once

#include "base/clock.h"
#include "http/http.h"
#include "http/park.h"
#include "http/request.h"
#include "http/response.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <string.h>

struct fixture {
    struct http_server *server;
    uint16_t port;
    _Atomic(struct http_ticket *) ticket; /* of the newest parked request */
    atomic_int parked, resumed, gone, why;
};

/* Overrides may be NULL. Failing set-up fails the test. */
void fixture_start(struct fixture *f, const struct http_config *overrides);
void fixture_stop(struct fixture *f);

int peer_connect(const struct fixture *f);
void peer_send(int fd, const char *text);
void peer_send_bytes(int fd, const void *data, size_t len);
/* Reads until the server closes or `until` has been seen (NULL: only the former), at most 10 s. Static
 * buffer. */
const char *peer_read(int fd, const char *until);
/* One connection: sends, closes its sending half, reads everything. */
const char *peer_ask(const struct fixture *f, const char *text);
int peer_status(const char *answer);
/* Waits until *value >= least, at most 10 s. */
bool wait_for(atomic_int *value, int least);
