#include "broker/guard.h"

#include "base/limits.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

static bool any_value(const char *value)
{
    (void)value;
    return true;
}

static bool is_broker(const char *value)
{
    return strcasecmp(value, "broker") == 0;
}

static bool is_dummy_key(const char *value)
{
    static const char scheme[] = "Bearer ";

    return strncasecmp(value, scheme, sizeof scheme - 1) == 0 &&
           strcmp(value + sizeof scheme - 1, DUMMY_KEY) == 0;
}

static bool is_connection(const char *value)
{
    return strcasecmp(value, "keep-alive") == 0 || strcasecmp(value, "close") == 0;
}

static bool is_length(const char *value)
{
    size_t len = strspn(value, "0123456789");

    return len >= 1 && len <= 18 && value[len] == '\0';
}

enum header { HOST, CONTENT_TYPE, CONTENT_LENGTH, ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, AGENT, CONNECTION };

/* Everything else, Transfer-Encoding and Expect among it, is refused. */
static const struct {
    const char *name;
    bool (*fine)(const char *value);
} allowed[] = {
    [HOST] = {"host", is_broker},
    [CONTENT_TYPE] = {"content-type", any_value},
    [CONTENT_LENGTH] = {"content-length", is_length},
    [ACCEPT] = {"accept", any_value},
    [ACCEPT_ENCODING] = {"accept-encoding", any_value},
    [AUTHORIZATION] = {"authorization", is_dummy_key},
    [AGENT] = {"user-agent", any_value},
    [CONNECTION] = {"connection", is_connection},
};

struct request_head {
    const char *value[ARRAY_LEN(allowed)];
    bool refused;
};

static enum MHD_Result on_header(void *arg, enum MHD_ValueKind kind, const char *name, size_t name_len,
                                 const char *value, size_t value_len)
{
    struct request_head *head = arg;

    (void)kind;
    for (size_t i = 0; i < ARRAY_LEN(allowed); i++) {
        if (strcasecmp(name, allowed[i].name) != 0)
            continue;
        head->refused = head->value[i] || !value || strlen(name) != name_len || strlen(value) != value_len ||
                        !allowed[i].fine(value);
        head->value[i] = value;
        return head->refused ? MHD_NO : MHD_YES;
    }
    head->refused = true;
    return MHD_NO;
}

/* application/json, with parameters or without. */
static bool is_json(const char *type)
{
    static const char json[] = "application/json";
    size_t len = sizeof json - 1;

    return type && strncasecmp(type, json, len) == 0 && strchr("; \t", type[len]);
}

int guard_request(struct MHD_Connection *connection, const char *method, const char *uri, struct err *err)
{
    struct request_head head = {0};

    if (strcmp(method, "POST") != 0 || strcmp(uri, "/model") != 0)
        return err_set(err, ERR_NOT_FOUND, "no such route");
    MHD_get_connection_values_n(connection, MHD_HEADER_KIND, on_header, &head);
    if (head.refused || !head.value[HOST])
        return err_set(err, ERR_FORBIDDEN, "a header is not allowed");
    const char *length = head.value[CONTENT_LENGTH];
    if (length && strtoull(length, NULL, 10) > LIMIT_BROKER_BODY)
        return err_set(err, ERR_TOO_LARGE, "more than %d bytes", LIMIT_BROKER_BODY);
    if (!is_json(head.value[CONTENT_TYPE]))
        return err_set(err, ERR_MEDIA_TYPE, "not application/json");
    return 0;
}
