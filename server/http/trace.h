/* http/trace.h: W3C trace context (https://www.w3.org/TR/trace-context/) and request ids. Thread-safe. */
#pragma once

#include "base/base.h"

#define TRACEPARENT_SIZE 56  /* "00-<32>-<16>-<2>" and NUL */
#define REQUEST_ID_SIZE  129 /* accepted: [A-Za-z0-9._-]{1,128} */

/* Continues `incoming` (NULL or invalid: starts a new trace, sampled) with a new parent id. */
void trace_continue(const char *incoming, char out[TRACEPARENT_SIZE]);
/* Keeps an acceptable X-Request-Id, else makes "req_<32 hex>". `incoming` may be NULL. */
void request_id_accept(const char *incoming, char out[REQUEST_ID_SIZE]);
