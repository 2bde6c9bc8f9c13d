/* handlers/idempotent.h: Idempotency-Key of POST /v1/turns (http.md): the same name and body give the first
 * turn's answer. */
#pragma once

#include "http/request.h"

#define IDEMPOTENCY_NAME_MAX 255

struct idempotent {
    char name[IDEMPOTENCY_NAME_MAX + 1]; /* "": the request has none */
    unsigned char hash[32];              /* SHA-256 of the body as it came */
};

/* Reads header and body. ERR_BAD_REQUEST: not 1 to 255 printable ASCII characters, with or without quotes. */
MUST_USE int idempotent_read(const struct http_req *req, struct idempotent *ret, struct err *err);
/* The header's value alone; `header` NULL: "". Pure. */
MUST_USE int idempotent_name(const char *header, char ret[IDEMPOTENCY_NAME_MAX + 1], struct err *err);
