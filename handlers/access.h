/* handlers/access.h: what the caller of a request may see. Authorisation (service.h) has put its principal
 * there before any handler runs. */
#pragma once

#include "auth/auth.h"
#include "handlers/service.h"
#include "http/request.h"
#include "storage/turns.h"

/* A route that asks for no key. Every other scope is a set of enum scope bits, any of which suffices. */
#define SCOPE_OPEN 0u

static inline struct service *service_of(const struct http_req *req)
{
    return http_context(req);
}

/* Borrowed; NULL on open routes only. */
static inline const struct principal *caller_of(const struct http_req *req)
{
    return http_principal(req);
}

/* 0 when the caller may work on this channel with `scopes`, else ERR_NOT_FOUND: a foreign channel does not
 * exist for it. Also ERR_INVALID when the key breaks the rules of mission.md section 1. */
MUST_USE int access_channel(const struct http_req *req, const char *key, unsigned scopes, struct err *err);
/* The turn of that id when the caller may see it: its own, or with turns:read those of its channels; else
 * ERR_NOT_FOUND. *ret is the caller's. */
MUST_USE int access_turn(const struct http_req *req, const char *id, struct turn **ret, struct err *err);
