/* base/log.h: one JSON object per line on standard error. Leaf code does not log; pool, handlers and app do,
 * once per failure. Never a message text, header, key or credential. Thread-safe: one write(2) per line. */
#pragma once

#include "base/err.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

void log_set_level(enum log_level least);
/* `subject` is a turn, request or slot id of up to 128 characters, or NULL. */
void log_line(enum log_level level, const char *subject, const char *fmt, ...) FORMAT(3, 4);
