#include "http/trace.h"

#include "base/id.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* n lower-case hex digits; the standard refuses upper case. */
static bool hex_lower(const char *s, size_t n)
{
    return strspn(s, "0123456789abcdef") >= n;
}

/* Versions above 00 may append fields, version ff is forbidden, ids of zeros are invalid. */
static bool trace_valid(const char *s)
{
    size_t len = strlen(s);

    if (len < TRACEPARENT_SIZE - 1 || !hex_lower(s, 2) || strncmp(s, "ff", 2) == 0)
        return false;
    if (s[2] != '-' || s[35] != '-' || s[52] != '-')
        return false;
    if (!hex_lower(s + 3, 32) || !hex_lower(s + 36, 16) || !hex_lower(s + 53, 2))
        return false;
    if (strspn(s + 3, "0") >= 32 || strspn(s + 36, "0") >= 16)
        return false;
    if (len == TRACEPARENT_SIZE - 1)
        return true;
    return strncmp(s, "00", 2) != 0 && s[55] == '-';
}

void trace_continue(const char *incoming, char out[TRACEPARENT_SIZE])
{
    char trace[ID_HEX_128], parent[17], flags[3] = "01";

    id_hex(parent, 8);
    if (incoming && trace_valid(incoming)) {
        snprintf(trace, sizeof trace, "%.32s", incoming + 3);
        snprintf(flags, sizeof flags, "%.2s", incoming + 53);
    } else {
        id_hex(trace, 16);
    }
    snprintf(out, TRACEPARENT_SIZE, "00-%s-%s-%s", trace, parent, flags);
}

void request_id_accept(const char *incoming, char out[REQUEST_ID_SIZE])
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t len = incoming ? strlen(incoming) : 0;

    if (len > 0 && len < REQUEST_ID_SIZE && strspn(incoming, allowed) == len)
        memcpy(out, incoming, len + 1);
    else
        id_new("req_", out, REQUEST_ID_SIZE);
}
