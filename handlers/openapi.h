/* handlers/openapi.h: openapi.yaml inside the binary (made by cmake/embed.cmake). */
#pragma once

extern const char *const embedded_openapi; /* NUL-terminated */
extern const unsigned long embedded_openapi_len;
