/* workers/hostile.h: what the modes of the hostile worker share. */
#pragma once

#include <jansson.h>

/* Writes {"ok":true,"text":…,"data":…} and a newline to stdout; takes `data` over, which may be NULL. */
void reply(const char *text, json_t *data);
/* Writes all of it, or ends the program. */
void put(int fd, const char *data, size_t len);

json_t *look_around(void); /* inspect-self: what the container looks like from inside */
json_t *probe_calls(void); /* seccomp-probe: what each system call answers */
json_t *
ask_broker(const char *headers); /* one call of /model with these header lines more, the answer as it came */
json_t *dump_all(const char *turn); /* dump: all that a worker can read, `turn` among it */
