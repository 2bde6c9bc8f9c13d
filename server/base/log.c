#include "base/log.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static _Atomic int least_level = LOG_INFO;

void log_set_level(enum log_level least)
{
    least_level = least;
}

/* Copies s into out as the inside of a JSON string. Bytes beyond ASCII pass as they are. */
static size_t escape(const char *s, char *out, size_t size)
{
    size_t o = 0;

    for (; *s && o + 7 < size; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            o += (size_t)snprintf(out + o, size - o, "\\%c", c);
        else if (c < 0x20 || c == 0x7F)
            o += (size_t)snprintf(out + o, size - o, "\\u%04x", c);
        else
            out[o++] = (char)c;
    }
    out[o] = '\0';
    return o;
}

void log_line(enum log_level level, const char *subject, const char *fmt, ...)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    char text[1024], safe[2048], who[160] = "", line[2600], when[CLOCK_RFC3339_SIZE];
    va_list ap;

    if ((int)level < least_level)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    CLEANUP(free_str)
    char *clean = utf8_sanitize(text, strlen(text)); /* a cut or foreign text may not be UTF-8 */
    escape(clean ? clean : "out of memory", safe, sizeof safe);
    if (subject) {
        char id[128 + 8]; /* the longest is a request's (http/trace.h); escape keeps 7 bytes free */
        escape(subject, id, sizeof id);
        snprintf(who, sizeof who, "\"id\":\"%s\",", id);
    }
    int n = snprintf(line, sizeof line, "{\"time\":\"%s\",\"level\":\"%s\",%s\"msg\":\"%s\"}\n",
                     clock_rfc3339(clock_wall_ms(), when), names[level], who, safe);
    if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0)
        return; /* nowhere left to tell */
}
