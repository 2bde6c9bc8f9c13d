/* base/secret.h: credentials in locked memory, hashes and comparisons without timing. (libsodium) */
#pragma once

#include "base/err.h"

#include <stdbool.h>

#define SHA256_HEX_SIZE 65

/* libsodium, once, before any thread. */
MUST_USE int secret_init(struct err *err);

struct secret {
    char *data; /* NUL-terminated, in sodium_malloc memory: locked, guarded, wiped when freed */
    size_t len;
};
/* Copies `len` bytes; the caller wipes its own copy. */
MUST_USE int secret_set(struct secret *s, const char *data, size_t len, struct err *err);
void secret_free(struct secret *s);
void secret_wipe(void *data, size_t len);

void secret_sha256(const void *data, size_t len, unsigned char out[32]);
void secret_sha256_hex(const void *data, size_t len, char out[SHA256_HEX_SIZE]);
bool secret_equal(const void *a, const void *b, size_t len); /* constant time */
