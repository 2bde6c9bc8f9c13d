/* tests/fuzz/support/fuzz.h: what the targets share. A target checks properties of what the code says about
 * any input, not only that it survives; a broken one says so and aborts, and libFuzzer keeps the input. */
#pragma once

#include "base/json.h"

#include <errno.h>
#include <stdbool.h>

#define PROPERTY(holds, ...)                                                                                 \
    do {                                                                                                     \
        if (!(holds))                                                                                        \
            fuzz_broken(__FILE__, __LINE__, __VA_ARGS__);                                                    \
    } while (0)
_Noreturn void fuzz_broken(const char *file, int line, const char *fmt, ...) FORMAT(3, 4);

/* A call that signals may interrupt: libFuzzer keeps its time with one. */
#define RETRY(call)                                                                                          \
    __extension__({                                                                                          \
        __typeof__(call) rc_;                                                                                \
        do                                                                                                   \
            rc_ = (call);                                                                                    \
        while (rc_ < 0 && errno == EINTR);                                                                   \
        rc_;                                                                                                 \
    })

/* Called by libFuzzer. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* NUL-terminated copy; caller frees. Never NULL. */
char *fuzz_text(const uint8_t *data, size_t size);
/* json_parse, with its error checked; NULL when it is not acceptable JSON. Caller frees. */
json_t *fuzz_json(const char *text, size_t size);

/* Takes pieces off the front of the input; the rest stays. */
struct fuzz_input {
    const uint8_t *data;
    size_t size;
};
uint8_t fuzz_byte(struct fuzz_input *in); /* 0 when nothing is left */

/* Every fault has a sentence and a pointer to a place in the value, or to a member that is missing from an
 * object there; at most JSON_FAULTS_MAX are kept and the total is no less. */
void fuzz_check_faults(const json_t *value, const struct json_faults *faults);
/* err has a code of the table and a sentence of valid UTF-8. */
void fuzz_check_err(const struct err *err);

/* No two tool calls in the messages have one id, and each answer of a tool is to a call before it when
 * `answered`. (mission.md section 7) */
void fuzz_check_call_ids(const json_t *messages, bool answered);

/* A fresh folder that is removed at exit, in memory where the machine has such a file system. */
const char *fuzz_folder(void);
