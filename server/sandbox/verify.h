/* sandbox/verify.h: is a created container what was asked for? (mission.md section 2) Pure functions. */
#pragma once

#include "base/err.h"
#include "base/json.h"

/* Compares the answer of GET /containers/{id}/json with the body it was created from (spec_body) and with the
 * image's own environment (an array of "K=V", or NULL). Every field of the body must be there with the same
 * value; what could weaken the seal and is not in the body must be empty. ERR_ENGINE names the first field
 * that differs. All are borrowed. */
MUST_USE int verify_container(const json_t *body, const json_t *image_env, const json_t *inspect,
                              struct err *err);

/* Is an image usable? From GET /images/{name}/json. ERR_IMAGE: it declares volumes (they would be a third,
 * uncapped mount), or has nothing to run. */
MUST_USE int verify_image(const json_t *image, struct err *err);
