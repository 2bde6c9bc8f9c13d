#include "handlers/views.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

/* An RFC 3339 time, or null for 0. */
static json_t *time_view(int64_t ms)
{
    char text[CLOCK_RFC3339_SIZE];

    return ms == 0 ? json_null() : json_string(clock_rfc3339(ms, text));
}

static json_t *or_null(json_t *value)
{
    return value ? json_incref(value) : json_null();
}

static json_t *error_view(const struct turn *t)
{
    if (!t->error_code)
        return json_null();
    return json_pack("{s:s, s:s}", "code", t->error_code, "detail", t->error_detail ? t->error_detail : "");
}

/* The spans that the pool has noted, with times as the API tells them. */
static json_t *trace_view(const struct turn *t)
{
    char trace_id[33] = "";
    json_t *spans = json_array(), *span;
    size_t i;

    if (strlen(t->traceparent) == TURN_TRACE_SIZE - 1) /* 00-<trace id>-<parent>-<flags> */
        snprintf(trace_id, sizeof trace_id, "%.32s", t->traceparent + 3);
    json_array_foreach(t->spans, i, span) {
        json_array_append_new(
            spans, json_pack("{s:O, s:o, s:O}", "name", json_object_get(span, "name"), "started_at",
                             time_view(json_integer_value(json_object_get(span, "started_ms"))),
                             "duration_ms", json_object_get(span, "duration_ms")));
    }
    return json_pack("{s:s, s:o}", "trace_id", trace_id, "spans", spans);
}

json_t *turn_view(const struct turn *t, bool logs)
{
    json_t *v = json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "id", t->id, "object",
                          "turn", "channel", t->channel, "status", turn_status_name(t->status), "speaker",
                          or_null(json_object_get(t->request, "speaker")), "reply", or_null(t->reply),
                          "error", error_view(t), "created_at", time_view(t->created_ms), "started_at",
                          time_view(t->started_ms), "finished_at", time_view(t->finished_ms), "metrics",
                          or_null(t->metrics));
    json_t *metadata = json_object_get(t->request, "metadata");

    bool whole = v && (!metadata || json_object_set(v, "metadata", metadata) == 0);
    if (whole)
        whole = json_object_set_new(v, "attempts", json_integer(t->attempts)) == 0;
    if (whole && t->cancel_requested_ms)
        whole = json_object_set_new(v, "cancel_requested_at", time_view(t->cancel_requested_ms)) == 0;
    if (whole)
        whole = json_object_set_new(v, "trace", trace_view(t)) == 0;
    if (whole && logs)
        whole = json_object_set_new(v, "logs", or_null(t->logs)) == 0;
    if (whole)
        return v;
    json_decref(v);
    return NULL;
}

json_t *channel_view(struct service *sv, const struct channel *c)
{
    struct queue_channel_info info = {0};

    queue_channel(sv->queue, c->key, &info);
    return json_pack("{s:s, s:s, s:b, s:b, s:b, s:i, s:b, s:o, s:o}", "key", c->key, "object", "channel",
                     "enabled", c->enabled, "busy", info.busy, "blocked",
                     sv->host.blocked(sv->host.host, c->key), "queued", (int)info.queued, "reset_pending",
                     channel_reset_pending(c), "created_at", time_view(c->created_ms), "updated_at",
                     time_view(c->updated_ms));
}

json_t *key_view(const struct api_key *k)
{
    return json_pack("{s:s, s:s, s:s, s:o, s:O, s:o, s:o}", "id", k->id, "object", "api_key", "name", k->name,
                     "scopes", scopes_json(k->scopes), "channels", k->globs, "created_at",
                     time_view(k->created_ms), "revoked_at", time_view(k->revoked_ms));
}
