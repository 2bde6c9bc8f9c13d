/* handlers/views.h: rows as clients see them. New references; NULL: out of memory. */
#pragma once

#include "handlers/service.h"
#include "storage/channels.h"
#include "storage/keys.h"
#include "storage/turns.h"

/* `logs`: the caller may read what the worker wrote on stderr (mission.md section 9). */
json_t *turn_view(const struct turn *t, bool logs);
json_t *channel_view(struct service *sv, const struct channel *c);
/* Without its secret, which nobody knows. */
json_t *key_view(const struct api_key *k);
