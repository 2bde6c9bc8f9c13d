#include "broker/budget.h"

int budget_take_call(struct budget *b, struct err *err)
{
    if (b->busy)
        return err_set(err, ERR_RATE, "another call is in flight");
    if (b->calls_left == 0) {
        b->spent = true;
        return err_set(err, ERR_BUDGET, "no call is left");
    }
    b->calls_left--;
    b->busy = true;
    return 0;
}

void budget_end_call(struct budget *b)
{
    b->busy = false;
}
