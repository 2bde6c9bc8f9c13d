#include "note.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void note(const char *fmt, ...)
{
    char line[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    CLEANUP(free_str) char *safe = utf8_escape_control(line, strlen(line));
    if (safe)
        dprintf(STDERR_FILENO, "cloister-worker: %s\n", safe);
}
