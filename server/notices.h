/* notices.h: what an operator should know of a configuration and of the machine, though nothing of it is
 * wrong. */
#pragma once

#include "config/config.h"

/* Calls say() with each sentence, at start and in `check`. Any thread. */
void notices_each(const struct config *config, void (*say)(const char *sentence));
