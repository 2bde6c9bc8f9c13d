/* build.h: which build this is. */
#pragma once

#define CLOISTER_VERSION "0.1.0"

/* The linker's build id (SHA-1 of the binary's contents) in hex; "" when there is none. Set on the first
 * call, which comes before any thread. */
const char *build_id(void);
