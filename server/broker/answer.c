#include "broker/answer.h"

static const struct row {
    enum err_code err;
    int status;
    const char *code, *message;
} rows[] = {
    {ERR_INTERNAL, 500, "internal", "The call could not be made."}, /* also for whatever is not listed */
    {ERR_INVALID_JSON, 400, "invalid_json", "The body is not acceptable JSON."},
    {ERR_FORBIDDEN, 403, "forbidden", "This request is not allowed here."},
    {ERR_NOT_FOUND, 404, "not_found", "There is nothing here."},
    {ERR_GONE, 410, "gone", "No turn is running here."},
    {ERR_CANCELED, 410, "gone", "No turn is running here."},
    {ERR_TOO_LARGE, 413, "body_too_large", "The body is too large."},
    {ERR_MEDIA_TYPE, 415, "unsupported_media_type", "The body must be application/json."},
    {ERR_INVALID, 422, "invalid", "The body does not keep the rules."},
    {ERR_RATE, 429, "call_in_flight", "Only one call at a time is allowed."},
    {ERR_BUDGET, 429, "budget_spent", "The calls of this turn are used up."},
    {ERR_UPSTREAM, 502, "model_refused", "The model did not give a usable answer."},
    {ERR_NO_MEMORY, 503, "no_memory", "The service is out of memory."},
    {ERR_TIMEOUT, 504, "timeout", "The call took too long."},
};

static const struct row *row_of(enum err_code code)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].err == code)
            return &rows[i];
    return &rows[0];
}

int answer_status(enum err_code code)
{
    return row_of(code)->status;
}

char *answer_error(enum err_code code, const struct json_faults *faults)
{
    const struct row *row = row_of(code);
    CLEANUP(json_free)
    json_t *body = json_pack("{s:{s:s, s:s, s:O*}}", "error", "code", row->code, "message", row->message,
                             "errors", faults ? faults->list : NULL);
    char *text = NULL;
    struct err err;

    return body && json_text(body, &text, &err) == 0 ? text : NULL;
}
