#include "handlers/page.h"

#include "base/limits.h"
#include "base/utf8.h"
#include "http/response.h"

#include <stdio.h>
#include <string.h>

int page_cursor(const char *cursor, char *out, size_t size, struct err *err)
{
    size_t len = strlen(cursor);
    unsigned byte;

    if (len % 2 != 0 || len / 2 >= size || strspn(cursor, "0123456789abcdef") != len)
        return err_set(err, ERR_BAD_REQUEST, "the cursor is not one that a list gave");
    for (size_t i = 0; i < len; i += 2) {
        if (sscanf(cursor + i, "%2x", &byte) != 1 || byte == 0)
            return err_set(err, ERR_BAD_REQUEST, "the cursor is not one that a list gave");
        out[i / 2] = (char)byte;
    }
    out[len / 2] = '\0';
    if (!utf8_valid(out, len / 2))
        return err_set(err, ERR_BAD_REQUEST, "the cursor is not one that a list gave");
    return 0;
}

int page_limit(const char *text, size_t *ret, struct err *err)
{
    *ret = PAGE_DEFAULT;
    if (!text)
        return 0;
    unsigned long n = strspn(text, "0123456789") == strlen(text) ? strtoul(text, NULL, 10) : 0;
    if (n < 1 || n > PAGE_MAX)
        return err_set(err, ERR_BAD_REQUEST, "limit is a number from 1 to %d", PAGE_MAX);
    *ret = n;
    return 0;
}

enum http_result page_reply(struct http_req *req, json_t *data, bool has_more, const char *last)
{
    char hex[2 * LIMIT_CHANNEL_KEY + 1] = "";

    for (size_t i = 0; last[i] && 2 * i + 2 < sizeof hex; i++)
        snprintf(hex + 2 * i, 3, "%02x", (unsigned char)last[i]);
    return http_reply_json(req, 200,
                           json_pack("{s:O, s:b, s:o}", "data", data, "has_more", has_more, "next_cursor",
                                     has_more ? json_string(hex) : json_null()));
}
