/* handlers/page.h: what lists share: ?limit=, ?cursor= and the form of a page. */
#pragma once

#include "base/json.h"
#include "http/router.h"

#include <stdbool.h>

#define PAGE_DEFAULT 50
#define PAGE_MAX     200

/* 1 to PAGE_MAX; `text` NULL: PAGE_DEFAULT. ERR_BAD_REQUEST. */
MUST_USE int page_limit(const char *text, size_t *ret, struct err *err);
/* A cursor is hex of what the list goes on after: opaque to clients, safe in a query. ERR_BAD_REQUEST when it
 * is none that page_reply gave. */
MUST_USE int page_cursor(const char *cursor, char *out, size_t size, struct err *err);
/* {"data", "has_more", "next_cursor"}; `data` borrowed; `last` is what the next page goes on after. */
enum http_result page_reply(struct http_req *req, json_t *data, bool has_more, const char *last);
