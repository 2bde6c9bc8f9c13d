/* sandbox/seccomp.h: the system calls a guest may make (mission.md section 2), as the Engine's JSON profile.
 *
 * An allow-list; what is not on it answers EPERM. One architecture only: the kernel kills a call made through
 * another one (i386's int 0x80, x32). Pure function. */
#pragma once

#include "base/err.h"
#include "base/json.h"

enum seccomp_arch { SECCOMP_X86_64, SECCOMP_AARCH64 };

#if defined(__x86_64__)
#define SECCOMP_NATIVE SECCOMP_X86_64
#elif defined(__aarch64__)
#define SECCOMP_NATIVE SECCOMP_AARCH64
#else
#error "no system call profile for this architecture"
#endif

/* The profile; the caller's. ERR_NO_MEMORY. */
MUST_USE int seccomp_profile(enum seccomp_arch arch, json_t **ret, struct err *err);
