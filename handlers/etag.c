#include "handlers/etag.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void etag_of(const struct channel *c, char out[ETAG_SIZE])
{
    snprintf(out, ETAG_SIZE, "\"%lld-%llx\"", (long long)c->version, (unsigned long long)c->created_ms);
}

/* Strong comparison with each of a comma-separated list. Our tags hold no comma. */
static bool listed(const char *list, const char *tag)
{
    while (*list) {
        list += strspn(list, " \t,");
        size_t len = strcspn(list, " \t,");
        if (len > 0 && len == strlen(tag) && memcmp(list, tag, len) == 0)
            return true;
        list += len;
    }
    return false;
}

int etag_check(const char *if_match, const char *if_none_match, const struct channel *c, struct err *err)
{
    char tag[ETAG_SIZE] = "";

    if (c)
        etag_of(c, tag);
    if (if_match && (!c || (strcmp(if_match, "*") != 0 && !listed(if_match, tag))))
        return err_set(err, ERR_PRECONDITION, c ? "the channel has changed" : "there is no such channel");
    if (if_none_match && c && (strcmp(if_none_match, "*") == 0 || listed(if_none_match, tag)))
        return err_set(err, ERR_PRECONDITION, "the channel is there already");
    return 0;
}
