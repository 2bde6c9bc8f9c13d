/* handlers/resources.h: one handler per resource and verb, named after both. */
#pragma once

#include "http/router.h"

http_handler livez, readyz, openapi_get;
http_handler turns_create, turns_read, turns_list_get, turn_cancel, turn_events;
http_handler channels_list, channel_read, channel_put, channel_delete, channel_reset, channel_stop;
http_handler key_create, keys_list, key_delete;
