/* schemas/tool_size.h: what tool definitions take in a request to the model. The service refuses by it what
 * the worker, which cuts descriptions by it, could not offer. (mission.md 7) */
#pragma once

#include "base/json.h"

/* Bytes of rebuilt definitions (schemas/model_input.h) as JSON when every description is cut to `most` bytes,
 * counted as they stand inside a JSON string. ERR_NO_MEMORY. Pure. */
MUST_USE int tool_size(const json_t *tools, size_t most, size_t *ret, struct err *err);
