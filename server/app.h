/* app.h: the whole service: builds every room in order, stops them in reverse. (house.md) */
#pragma once

#include "broker/broker.h"
#include "config/config.h"
#include "config/roots.h"
#include "sandbox/sandbox.h"

/* Runs until SIGTERM or SIGINT has been carried out; SIGHUP resolves the image again (mission.md 2). Both are
 * borrowed. Main thread, before any other. */
MUST_USE int app_serve(const struct config *config, const struct roots *roots, struct err *err);

/* What the configuration says about broker and sandbox; also for `check`. */
MUST_USE int app_broker_env(const struct config *config, struct broker_env **ret, struct err *err);
MUST_USE int app_sandbox(const struct config *config, const char *installation, const char *boot,
                         struct sandbox **ret, struct err *err);
