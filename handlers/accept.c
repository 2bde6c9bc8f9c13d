#include "handlers/accept.h"

#include "base/base.h"

#include <string.h>
#include <strings.h>

/* Thousandths: "0.5" → 500. What is no weight counts as 1. */
static int weight(const char *at, size_t len)
{
    int w = 0, unit = 100;

    if (len == 0 || (at[0] != '0' && at[0] != '1') || (len > 1 && at[1] != '.') || len > 5)
        return 1000;
    if (at[0] == '1')
        return 1000;
    for (size_t i = 2; i < len; i++, unit /= 10) {
        if (at[i] < '0' || at[i] > '9')
            return 1000;
        w += (at[i] - '0') * unit;
    }
    return w;
}

/* Of one media range with its parameters. */
static int weight_of(const char *at, size_t len)
{
    const char *end = at + len;

    while ((at = memchr(at, ';', (size_t)(end - at)))) {
        at++;
        while (at < end && (*at == ' ' || *at == '\t'))
            at++;
        if (end - at < 2 || strncasecmp(at, "q=", 2) != 0)
            continue;
        at += 2;
        size_t n = 0;
        while (at + n < end && strchr("0123456789.", at[n]))
            n++;
        return weight(at, n);
    }
    return 1000;
}

static bool is_type(const char *at, size_t len, const char *type)
{
    size_t n = 0;

    while (n < len && !strchr("; \t", at[n]))
        n++;
    return n == strlen(type) && strncasecmp(at, type, n) == 0;
}

bool accept_events(const char *header)
{
    int events = 0, json = 0;
    bool events_first = false;

    for (const char *at = header; at && *at; at += strcspn(at, ",")) {
        at += strspn(at, ", \t");
        size_t len = strcspn(at, ",");
        if (events == 0 && is_type(at, len, "text/event-stream")) {
            events = weight_of(at, len);
            events_first = json == 0;
        } else if (json == 0 && is_type(at, len, "application/json")) {
            json = weight_of(at, len);
        }
    }
    return events > 0 && (events > json || (events == json && events_first));
}
