#include "pool/internal.h"

#include <criterion/criterion.h>
#include <string.h>

#define GOOD   "{\"ok\":true,\"text\":\"hi\"}"
#define FAILED "{\"ok\":false,\"text\":\"no\"}"

struct row {
    enum box_end end;
    const char *out;
    int exit_code, signal;
    bool oom;
    unsigned oom_kills, pids_hits;
    bool refused, spent, late;
    enum ending asked, want;
};

static enum ending judge(const struct row *row, json_t **reply)
{
    struct box_result r = {.end = row->end,
                           .out = BUF_INIT(1 << 20),
                           .exit_code = row->exit_code,
                           .signal = row->signal,
                           .oom = row->oom,
                           .oom_kills = row->oom_kills,
                           .pids_hits = row->pids_hits};
    struct broker_stats stats = {.model_refused = row->refused, .budget_spent = row->spent};
    struct err err;

    if (row->out)
        cr_assert_eq(buf_adds(&r.out, row->out, &err), 0);
    enum ending e = ending_of(&r, &stats, row->asked, row->late, reply);
    buf_free(&r.out);
    return e;
}

static const struct row rows[] = {
    /* A good reply wins over whatever else happened. */
    {.end = BOX_REPLY, .out = GOOD, .exit_code = -1, .want = END_NONE},
    {.end = BOX_REPLY, .out = GOOD, .exit_code = -1, .oom_kills = 3, .pids_hits = 2, .want = END_NONE},
    {.end = BOX_REPLY, .out = GOOD, .exit_code = -1, .refused = true, .spent = true, .want = END_NONE},
    {.end = BOX_REPLY, .out = GOOD, .exit_code = -1, .late = true, .asked = END_CANCELED, .want = END_NONE},
    {.end = BOX_EXITED, .out = GOOD, .want = END_NONE},
    /* A worker that says it failed: the deadline, then the broker's account, then the cgroup's. */
    {.end = BOX_REPLY, .out = FAILED, .exit_code = -1, .want = END_WORKER_FAILED},
    {.end = BOX_REPLY, .out = FAILED, .exit_code = -1, .refused = true, .want = END_MODEL_REFUSED},
    {.end = BOX_REPLY, .out = FAILED, .exit_code = -1, .spent = true, .want = END_BUDGET_SPENT},
    {.end = BOX_REPLY,
     .out = FAILED,
     .exit_code = -1,
     .spent = true,
     .refused = true,
     .want = END_BUDGET_SPENT},
    {.end = BOX_REPLY, .out = FAILED, .exit_code = -1, .refused = true, .late = true, .want = END_TIMEOUT},
    {.end = BOX_REPLY,
     .out = FAILED,
     .exit_code = -1,
     .oom_kills = 1,
     .late = true,
     .want = END_OUT_OF_MEMORY},
    {.end = BOX_REPLY, .out = FAILED, .exit_code = -1, .oom_kills = 1, .want = END_OUT_OF_MEMORY},
    {.end = BOX_REPLY,
     .out = FAILED,
     .exit_code = -1,
     .oom = true,
     .pids_hits = 1,
     .want = END_OUT_OF_MEMORY},
    {.end = BOX_REPLY, .out = FAILED, .exit_code = -1, .pids_hits = 1, .want = END_PID_LIMIT},
    {.end = BOX_REPLY,
     .out = FAILED,
     .exit_code = -1,
     .pids_hits = 1,
     .refused = true,
     .want = END_MODEL_REFUSED},
    {.end = BOX_EXITED, .out = FAILED, .want = END_WORKER_FAILED},
    /* No reply that could be used. */
    {.end = BOX_REPLY, .out = "garbage", .exit_code = -1, .want = END_INVALID_REPLY},
    {.end = BOX_REPLY, .out = "", .exit_code = -1, .want = END_INVALID_REPLY},
    {.end = BOX_REPLY, .exit_code = -1, .want = END_INVALID_REPLY},
    {.end = BOX_REPLY, .out = "[]", .exit_code = -1, .want = END_INVALID_REPLY},
    {.end = BOX_REPLY, .out = "{\"ok\":true}", .exit_code = -1, .want = END_INVALID_REPLY},
    {.end = BOX_REPLY,
     .out = "{\"ok\":true,\"text\":\"x\",\"key\":1}",
     .exit_code = -1,
     .want = END_INVALID_REPLY},
    {.end = BOX_REPLY, .out = GOOD GOOD, .exit_code = -1, .want = END_INVALID_REPLY},
    {.end = BOX_EXITED, .out = "garbage", .want = END_INVALID_REPLY},
    {.end = BOX_EXITED, .want = END_INVALID_REPLY},
    /* Ended first. */
    {.end = BOX_EXITED, .exit_code = 1, .want = END_EXIT_CODE},
    {.end = BOX_EXITED, .out = GOOD, .exit_code = 1, .want = END_EXIT_CODE},
    {.end = BOX_EXITED, .exit_code = -1, .want = END_EXIT_CODE},
    {.end = BOX_EXITED, .exit_code = 137, .oom_kills = 1, .want = END_OUT_OF_MEMORY},
    {.end = BOX_EXITED, .exit_code = -1, .signal = 9, .oom = true, .want = END_OUT_OF_MEMORY},
    {.end = BOX_EXITED, .exit_code = -1, .signal = 11, .want = END_SIGNAL},
    {.end = BOX_EXITED, .exit_code = -1, .signal = 9, .pids_hits = 4, .want = END_PID_LIMIT},
    {.end = BOX_EXITED, .exit_code = 2, .pids_hits = 4, .want = END_PID_LIMIT},
    {.end = BOX_EXITED, .exit_code = 2, .pids_hits = 4, .oom_kills = 1, .want = END_PID_LIMIT},
    {.end = BOX_EXITED, .oom_kills = 1, .want = END_OUT_OF_MEMORY},
    /* Limits, aborts, the engine. */
    {.end = BOX_TIMEOUT, .exit_code = -1, .late = true, .want = END_TIMEOUT},
    {.end = BOX_TIMEOUT, .out = GOOD, .exit_code = -1, .late = true, .want = END_TIMEOUT},
    {.end = BOX_TIMEOUT, .exit_code = -1, .oom_kills = 1, .want = END_OUT_OF_MEMORY},
    {.end = BOX_TIMEOUT, .exit_code = -1, .pids_hits = 1, .want = END_PID_LIMIT},
    {.end = BOX_OUTPUT_LIMIT, .out = GOOD, .exit_code = -1, .want = END_OUTPUT_LIMIT},
    {.end = BOX_OUTPUT_LIMIT, .exit_code = -1, .oom_kills = 1, .want = END_OUTPUT_LIMIT},
    {.end = BOX_ABORTED, .exit_code = -1, .want = END_CANCELED},
    {.end = BOX_ABORTED, .exit_code = -1, .asked = END_CANCELED, .want = END_CANCELED},
    {.end = BOX_ABORTED, .exit_code = -1, .asked = END_DISK_FULL, .want = END_DISK_FULL},
    {.end = BOX_ABORTED, .exit_code = -1, .asked = END_SERVER_RESTARTED, .want = END_SERVER_RESTARTED},
    {.end = BOX_ENGINE_LOST, .exit_code = -1, .want = END_ENGINE_UNAVAILABLE},
    {.end = BOX_ENGINE_LOST, .exit_code = -1, .oom_kills = 1, .want = END_ENGINE_UNAVAILABLE},
};

Test(ending_of, table)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        json_t *reply = NULL;
        enum ending got = judge(&rows[i], &reply);
        cr_assert_eq(got, rows[i].want, "row %zu: %s, not %s", i, ending_name(got),
                     ending_name(rows[i].want));
        cr_assert_eq(reply != NULL, got == END_NONE, "row %zu", i);
        if (reply)
            cr_assert_str_eq(json_str(reply, "text"), "hi");
        json_decref(reply);
    }
}

/* Every end, whatever the counts say, has an ending, and only a good reply is a success. */
Test(ending_of, every_combination_has_its_ending)
{
    static const char *const outs[] = {NULL, GOOD, FAILED, "x"};

    for (unsigned bits = 0; bits < 6 * 4 * 256; bits++) {
        unsigned b = bits / 24;
        struct row row = {.end = (enum box_end)(bits % 6),
                          .out = outs[bits / 6 % 4],
                          .exit_code = b & 1,
                          .signal = b & 2 ? 9 : 0,
                          .oom = b & 4,
                          .oom_kills = b & 8 ? 1 : 0,
                          .pids_hits = b & 16 ? 1 : 0,
                          .refused = b & 32,
                          .spent = b & 64,
                          .late = b & 128};
        json_t *reply = NULL;
        enum ending got = judge(&row, &reply);
        bool good = row.out && strcmp(row.out, GOOD) == 0 &&
                    (row.end == BOX_REPLY || (row.end == BOX_EXITED && row.exit_code == 0));
        cr_assert_eq(got == END_NONE, good, "%u", bits);
        cr_assert_eq(reply != NULL, good, "%u", bits);
        if (got == END_PID_LIMIT)
            cr_assert(row.pids_hits > 0);
        if (got == END_OUT_OF_MEMORY)
            cr_assert(row.oom || row.oom_kills > 0);
        json_decref(reply);
    }
}
