/* rig.h: a configuration file of the test's own, and what loading it says. */
#pragma once

#include "config/config.h"

#include "../scratch.h"

/* Loads the text as a file (NULL: no file). The faults as "pointer: detail" lines, or the error when there is
 * none;
 * "" when it is good. The static result is good until the next call. *ret (may be NULL) is the caller's. */
const char *rig_load(const char *yaml, struct config **ret);
