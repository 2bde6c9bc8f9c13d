/* server/broker/budget.h: what one turn may still call (mission.md 6): so many calls, one at a time.
 * One instance per turn, owned by its broker and used under the broker's lock. */
#pragma once

#include "base/err.h"

#include <stdbool.h>

#define BUDGET_CALLS_MAX 1000

struct budget {
    unsigned calls_left; /* 1..BUDGET_CALLS_MAX at the start */
    bool busy;           /* a call is in flight */
    bool spent;          /* a call was refused because none was left */
};

/* Takes one call and the one place in flight. 0, or -1 with nothing taken: ERR_RATE while another call is in
 * flight, ERR_BUDGET when none is left. */
MUST_USE int budget_take_call(struct budget *b, struct err *err);
/* The call is over; the place in flight is free again, the call stays taken. */
void budget_end_call(struct budget *b);
