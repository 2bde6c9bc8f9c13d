#include "handlers/prefer.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

static bool is_word(const char *at, size_t len, const char *word)
{
    return len == strlen(word) && strncasecmp(at, word, len) == 0;
}

/* Digits to a number up to the maximum, -1 when it is none. */
static int seconds(const char *at, size_t len)
{
    int n = 0;

    if (len == 0 || strspn(at, "0123456789") < len)
        return -1;
    for (size_t i = 0; i < len && n < PREFER_WAIT_MAX_S; i++)
        n = n * 10 + (at[i] - '0');
    return n < PREFER_WAIT_MAX_S ? n : PREFER_WAIT_MAX_S;
}

struct prefer prefer_parse(const char *header)
{
    struct prefer p = {.wait_s = PREFER_END};
    bool waits = false;

    for (const char *at = header; at && *at; at += strcspn(at, ",")) {
        at += strspn(at, ", \t");
        size_t len = strcspn(at, ",; \t");
        int n = len > 5 && strncasecmp(at, "wait=", 5) == 0 ? seconds(at + 5, len - 5) : -1;
        if (n >= 0 && !waits) { /* the first one counts */
            p = (struct prefer){.wait_s = n, .applied = "wait"};
            waits = true;
        } else if (is_word(at, len, "respond-async") && !waits) {
            p = (struct prefer){.wait_s = 0, .applied = "respond-async"};
        }
    }
    return p;
}
