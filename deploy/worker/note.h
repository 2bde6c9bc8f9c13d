/* note.h: one line on standard error, which the service keeps with the turn. Never a message text, an
 * argument or a result. Control characters are escaped; at most 1 KiB. */
#pragma once

#include "base/base.h"

void note(const char *fmt, ...) FORMAT(1, 2);
