#include "handlers/idempotent.h"

#include "base/secret.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

int idempotent_name(const char *header, char ret[IDEMPOTENCY_NAME_MAX + 1], struct err *err)
{
    ret[0] = '\0';
    if (!header)
        return 0;
    size_t len = strlen(header);
    bool quoted = len >= 2 && header[0] == '"' && header[len - 1] == '"';
    if (quoted) {
        header++;
        len -= 2;
    }
    if (len < 1 || len > IDEMPOTENCY_NAME_MAX)
        return err_set(err, ERR_BAD_REQUEST, "Idempotency-Key has 1 to %d characters", IDEMPOTENCY_NAME_MAX);
    for (size_t i = 0; i < len; i++)
        if (header[i] < 0x20 || header[i] > 0x7E || header[i] == '"')
            return err_set(err, ERR_BAD_REQUEST, "Idempotency-Key is printable ASCII without inner quotes");
    snprintf(ret, IDEMPOTENCY_NAME_MAX + 1, "%.*s", (int)len, header);
    return 0;
}

int idempotent_read(const struct http_req *req, struct idempotent *ret, struct err *err)
{
    size_t len = 0;
    const char *body = http_body(req, &len);

    secret_sha256(body, len, ret->hash);
    return idempotent_name(http_header(req, "Idempotency-Key"), ret->name, err);
}
