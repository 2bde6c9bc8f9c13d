/* storage/retention.h: finished turns and events go by age and by count. */
#pragma once

#include "storage/db.h"

struct retention {
    int64_t turns_before_ms;  /* turns that finished before go; 0: none by age */
    int64_t events_before_ms; /* events of turns that finished before go; 0: none by age */
    int64_t turns_keep;       /* at most so many finished turns stay, those that finished last; 0: no bound */
    int64_t
        names_before_ms; /* a turn with an idempotency key stays until this old, whatever the above says */
    int most;            /* rows of a kind in one job, so that others are not held up */
};
/* Inside a db job. *removed counts turns and pruned histories; less than `most` means done for now. */
MUST_USE int retention_prune(struct store *st, const struct retention *r, int *removed, struct err *err);
