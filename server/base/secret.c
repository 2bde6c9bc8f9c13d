#include "base/secret.h"

#include <sodium.h>
#include <string.h>

int secret_init(struct err *err)
{
    return sodium_init() < 0 ? err_set(err, ERR_SYSTEM, "libsodium does not start") : 0;
}

int secret_set(struct secret *s, const char *data, size_t len, struct err *err)
{
    char *copy = sodium_malloc(len + 1);

    if (!copy)
        return err_no_memory(err);
    memcpy(copy, data, len);
    copy[len] = '\0';
    secret_free(s);
    s->data = copy;
    s->len = len;
    return 0;
}

void secret_free(struct secret *s)
{
    sodium_free(s->data);
    *s = (struct secret){0};
}

void secret_wipe(void *data, size_t len)
{
    sodium_memzero(data, len);
}

void secret_sha256(const void *data, size_t len, unsigned char out[32])
{
    crypto_hash_sha256(out, data, len);
}

void secret_sha256_hex(const void *data, size_t len, char out[SHA256_HEX_SIZE])
{
    unsigned char hash[32];

    crypto_hash_sha256(hash, data, len);
    sodium_bin2hex(out, SHA256_HEX_SIZE, hash, sizeof hash);
}

bool secret_equal(const void *a, const void *b, size_t len)
{
    return sodium_memcmp(a, b, len) == 0;
}
