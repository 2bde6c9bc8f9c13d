/* A box's whole life on the real engine, with every hostile worker. */
#include "world.h"

#include "base/clock.h"
#include "base/id.h"
#include "base/limits.h"
#include "base/proc.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define TURN "{\"version\":1,\"text\":\"good morning\"}\n"

/* One turn of one worker; the checks follow in the test. */
static struct times life(const char *mode, const char *input, size_t len, int deadline_ms, int grace_ms,
                         struct world *w, struct box_result *r)
{
    world_open(w, mode);
    world_prepare(w);
    return world_run(w, input, len, deadline_ms, grace_ms, r);
}

static void done(struct world *w, struct box_result *r)
{
    box_result_free(r);
    world_close(w);
}

Test(life, echo_is_answered_at_the_newline)
{
    struct world w;
    struct box_result r;

    struct times t = life("echo", TURN, strlen(TURN), 10000, 1000, &w, &r);
    cr_expect_eq(r.end, BOX_REPLY);
    cr_expect_str_eq(r.out.data, "{\"ok\":true,\"text\":\"good morning\"}");
    cr_expect_geq(r.start_ms, t.start - 2);
    done(&w, &r);
}

#ifndef __SANITIZE_ADDRESS__ /* LeakSanitizer cannot look at a process that has made itself undumpable */
/* The service seals itself (mission.md section 2); it can still hold, signal and measure its workers. */
Test(life, a_sealed_service_keeps_its_grip)
{
    struct world w;
    struct box_result r;
    struct err err;

    world_open(&w, "ignore-term");
    world_prepare(&w);
    cr_assert_eq(proc_seal_self(&err), 0, "%s", err.text);
    struct times t = world_run(&w, TURN, strlen(TURN), 300, 200, &r);
    cr_expect_eq(r.end, BOX_TIMEOUT);
    cr_expect_lt(t.end - t.start, 500 + 500, "by its own signal, not by the engine's");
    cr_expect_gt(r.memory_peak, 0);
    done(&w, &r);
}
#endif

Test(life, the_largest_turn_passes_through)
{
    struct world w;
    struct box_result r;
    size_t len = LIMIT_TURN_LINE;
    char *turn = malloc(len);

    memset(turn, 'a', len);
    memcpy(turn, "{\"text\":\"", 9);
    memcpy(turn + len - 3, "\"}\n", 3);
    life("echo", turn, len, 10000, 1000, &w, &r);
    cr_expect_eq(r.end, BOX_REPLY);
    cr_expect_eq(r.out.len, len - 12 + strlen("{\"ok\":true,\"text\":\"\"}"));
    free(turn);
    done(&w, &r);
}

Test(life, a_worker_that_never_reads_does_not_block)
{
    struct world w;
    struct box_result r;
    size_t len = LIMIT_TURN_LINE;
    char *turn = malloc(len);

    memset(turn, 'a', len);
    life("deaf", turn, len, 10000, 1000, &w, &r);
    cr_expect_eq(r.end, BOX_REPLY);
    cr_expect_str_eq(r.out.data, "{\"ok\":true,\"text\":\"i did not listen\"}");
    cr_expect_geq(r.cpu_us, 0, "it lives on after its reply, so its figures can be read");
    cr_expect_gt(r.memory_peak, 0);
    free(turn);
    done(&w, &r);
}

Test(life, exit_without_a_reply_gives_the_code)
{
    struct world w;
    struct box_result r;

    life("exit-now", TURN, strlen(TURN), 10000, 1000, &w, &r);
    cr_expect_eq(r.end, BOX_EXITED);
    cr_expect_eq(r.exit_code, 3);
    cr_expect_eq(r.signal, 0);
    cr_expect_str_eq(r.err.data, "leaving\n");
    cr_expect_eq(r.out.len, 0);
    done(&w, &r);
}

Test(life, silence_is_exit_zero)
{
    struct world w;
    struct box_result r;

    life("silent", TURN, strlen(TURN), 10000, 1000, &w, &r);
    cr_expect_eq(r.end, BOX_EXITED);
    cr_expect_eq(r.exit_code, 0);
    done(&w, &r);
}

Test(life, a_reply_may_end_with_the_process)
{
    struct world w;
    struct box_result r;

    life("no-newline", TURN, strlen(TURN), 10000, 1000, &w, &r);
    cr_expect_eq(r.end, BOX_EXITED);
    cr_expect_eq(r.exit_code, 0);
    cr_expect_str_eq(r.out.data, "{\"ok\":true,\"text\":\"no newline\"}");
    done(&w, &r);
}

Test(life, a_crash_is_a_signal)
{
    struct world w;
    struct box_result r;

    life("crash", TURN, strlen(TURN), 10000, 1000, &w, &r);
    cr_expect_eq(r.end, BOX_EXITED);
    cr_expect_eq(r.signal, 11);
    cr_expect_eq(r.exit_code, -1);
    cr_expect_not(r.oom);
    cr_expect_str_eq(r.err.data, "about to crash\n");
    done(&w, &r);
}

Test(life, garbage_is_handed_over_as_it_is)
{
    struct world w;
    struct box_result r;

    life("garbage", TURN, strlen(TURN), 10000, 1000, &w, &r);
    cr_expect_eq(r.end, BOX_REPLY);
    cr_expect_eq(r.out.len, 19);
    cr_expect_eq(memcmp(r.out.data, "\xff\xfe{", 3), 0);
    done(&w, &r);
}

Test(life, a_reply_of_three_mib_is_too_much)
{
    struct world w;
    struct box_result r;

    life("big-reply", TURN, strlen(TURN), 10000, 1000, &w, &r);
    cr_expect_eq(r.end, BOX_OUTPUT_LIMIT);
    cr_expect_eq(r.out.len, LIMIT_STDOUT);
    cr_expect_gt(r.out_total, LIMIT_STDOUT);
    done(&w, &r);
}

Test(life, a_flood_ends_at_the_limit)
{
    struct world w;
    struct box_result r;

    struct times t = life("flood", TURN, strlen(TURN), 10000, 1000, &w, &r);
    cr_expect_eq(r.end, BOX_OUTPUT_LIMIT);
    cr_expect_lt(t.removed, 10000);
    done(&w, &r);
}

Test(life, a_flood_of_stderr_ends_at_the_deadline_and_keeps_the_last)
{
    struct world w;
    struct box_result r;

    struct times t = life("stderr-flood", TURN, strlen(TURN), 1000, 300, &w, &r);
    cr_expect_eq(r.end, BOX_TIMEOUT);
    cr_expect_eq(r.err.len, w.config.stderr_bytes);
    cr_expect_gt(r.err_total, w.config.stderr_bytes);
    cr_expect_lt(t.removed, t.start + 1300 + 5000);
    done(&w, &r);
}

Test(life, the_deadline_asks_politely_first)
{
    struct world w;
    struct box_result r;

    struct times t = life("sleep", TURN, strlen(TURN), 700, 5000, &w, &r);
    cr_expect_eq(r.end, BOX_TIMEOUT);
    cr_expect_geq(t.end - t.start, 700);
    cr_expect_lt(t.end - t.start, 700 + 3000, "it left on SIGTERM, before the grace was over");
    cr_expect_str_eq(r.out.data, "half a reply");
    cr_expect_str_eq(r.err.data, "still sleeping\n");
    done(&w, &r);
}

Test(life, the_grace_ends_with_sigkill)
{
    struct world w;
    struct box_result r;

    struct times t = life("ignore-term", TURN, strlen(TURN), 500, 500, &w, &r);
    cr_expect_eq(r.end, BOX_TIMEOUT);
    cr_expect_geq(t.end - t.start, 1000);
    cr_expect_lt(t.removed, t.start + 1000 + 5000);
    done(&w, &r);
}

/* Waiting is waiting: with stdin ended and a silent worker nothing is left to do. */
Test(life, a_waiting_run_uses_no_cpu)
{
    struct world w;
    struct box_result r;
    struct timespec before, after;

    world_open(&w, "ignore-term");
    world_prepare(&w);
    cr_assert_eq(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before), 0);
    world_run(&w, TURN, strlen(TURN), 1500, 0, &r);
    cr_assert_eq(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after), 0);
    int64_t ms = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
    cr_expect_lt(ms, 300, "%d ms of CPU", (int)ms);
    done(&w, &r);
}

Test(life, a_deadline_in_the_past_ends_at_once)
{
    struct world w;
    struct box_result r;

    life("ignore-term", TURN, strlen(TURN), -10, 0, &w, &r);
    cr_expect_eq(r.end, BOX_TIMEOUT);
    done(&w, &r);
}

Test(life, an_abort_kills_at_once)
{
    struct world w;
    struct box_result r;

    world_open(&w, "ignore-term");
    world_prepare(&w);
    world_abort_after(&w, 600);
    struct times t = world_run(&w, TURN, strlen(TURN), 20000, 5000, &r);
    cr_expect_eq(r.end, BOX_ABORTED);
    cr_expect_lt(t.end, 3000);
    done(&w, &r);
}

Test(life, a_fork_bomb_ends_at_the_deadline)
{
    struct world w;
    struct box_result r;

    struct times t = life("forkbomb", TURN, strlen(TURN), 1000, 300, &w, &r);
    cr_expect_eq(r.end, BOX_TIMEOUT);
    cr_expect_gt(r.pids_hits, 0);
    cr_expect_lt(t.removed, t.start + 1300 + 5000);
    done(&w, &r);
}

Test(life, the_pids_limit_is_counted)
{
    struct world w;
    struct box_result r;

    life("pid-limit", TURN, strlen(TURN), 10000, 1000, &w, &r);
    cr_expect_eq(r.end, BOX_REPLY);
    cr_expect_gt(r.pids_hits, 0);
    cr_expect(strstr(r.out.data, "\"ok\":false"));
    done(&w, &r);
}

/* Here the count is a race with the runtime, which removes the cgroup. */
Test(life, an_exit_at_the_pids_limit_gives_the_code)
{
    struct world w;
    struct box_result r;

    life("pid-limit-exit", TURN, strlen(TURN), 10000, 1000, &w, &r);
    cr_expect_eq(r.end, BOX_EXITED);
    cr_expect_eq(r.exit_code, 1);
    cr_expect(strstr(r.err.data, "fork: "));
    done(&w, &r);
}

Test(life, memory_ends_the_process)
{
    struct world w;
    struct box_result r;

    life("eat-memory", TURN, strlen(TURN), 20000, 1000, &w, &r);
    cr_expect_eq(r.end, BOX_EXITED);
    cr_expect_eq(r.signal, 9);
    cr_expect(r.oom);
    if (r.memory_peak >= 0) { /* read before the runtime removed the cgroup */
        cr_expect_gt(r.oom_kills, 0);
        cr_expect_gt(r.memory_peak, 60LL * 1024 * 1024);
        cr_expect_leq(r.memory_peak, 64LL * 1024 * 1024);
    }
    done(&w, &r);
}

Test(life, a_child_killed_for_memory_is_not_the_worker)
{
    struct world w;
    struct box_result r;

    life("child-oom", TURN, strlen(TURN), 20000, 1000, &w, &r);
    cr_expect_eq(r.end, BOX_REPLY);
    cr_expect_not(r.oom);
    cr_expect_eq(r.oom_kills, 1);
    cr_expect_str_eq(r.out.data, "{\"ok\":true,\"text\":\"the child was killed\"}");
    done(&w, &r);
}

Test(life, closed_outputs_are_no_lost_engine)
{
    struct world w;
    struct box_result r;

    struct times t = life("close-stdout", TURN, strlen(TURN), 1000, 2000, &w, &r);
    cr_expect_eq(r.end, BOX_TIMEOUT);
    cr_expect_str_eq(r.note, "");
    cr_expect_str_eq(r.out.data, "last words");
    cr_expect_geq(t.end - t.start, 1000);
    cr_expect_lt(t.end - t.start, 2500, "it left on SIGTERM");
    done(&w, &r);
}

/* Nothing of it is alive when box_remove has returned: the files stop growing. */
Test(life, a_writer_after_the_reply_is_dead_after_removal)
{
    struct world w;
    struct box_result r;
    struct stat a, b;
    char path[128];

    world_open(&w, "reply-then-write");
    world_prepare(&w);
    snprintf(path, sizeof path, "%s/after-reply-child", w.work);
    world_run(&w, TURN, strlen(TURN), 10000, 1000, &r);
    cr_expect_eq(r.end, BOX_REPLY);
    cr_assert_eq(stat(path, &a), 0, "its child has written");
    clock_sleep_ms(200); /* it would have written 20 times */
    cr_assert_eq(stat(path, &b), 0);
    cr_expect_eq(a.st_size, b.st_size);
    done(&w, &r);
}

/* The container exists, is attached, and was never started. */
Test(life, a_box_can_be_removed_before_it_starts)
{
    struct world w;
    struct box *box = NULL;
    struct err err;
    char slot[ID_HEX_128];

    world_open(&w, "echo");
    cr_expect_lt(box_create(w.sandbox, "0123", w.broker, w.work, NULL, NULL, &box, &err), 0);
    cr_expect_eq(err.code, ERR_CONFIG, "not prepared");
    cr_expect_null(box);
    world_prepare(&w);
    cr_expect_lt(box_create(w.sandbox, "0123", w.broker, w.work, NULL, NULL, &box, &err), 0);
    cr_expect_eq(err.code, ERR_CONFIG, "no slot");
    cr_expect_null(box);
    id_hex(slot, 16);
    cr_assert_eq(box_create(w.sandbox, slot, w.broker, w.work, NULL, NULL, &box, &err), 0, "%s", err.text);
    cr_expect_eq(strlen(box_container_id(box)), 64);
    cr_expect_eq(box_remove(box, &err), 0, "%s", err.text);
    box_free(box);
    world_close(&w);
}

/* What an earlier run of the service left is removed by the name of its slot alone. */
Test(life, a_box_of_an_earlier_run_is_removed_by_its_slot)
{
    struct world w;
    struct box *box = NULL, *adopted = NULL;
    struct err err;
    char slot[ID_HEX_128];

    world_open(&w, "ignore-term");
    world_prepare(&w);
    id_hex(slot, 16);
    cr_expect_lt(box_adopt(w.sandbox, "0123", &adopted, &err), 0);
    cr_expect_eq(err.code, ERR_CONFIG);
    cr_assert_eq(box_create(w.sandbox, slot, w.broker, w.work, NULL, NULL, &box, &err), 0, "%s", err.text);
    cr_assert_eq(box_start(box, NULL, &err), 0, "%s", err.text);
    box_free(box);
    for (int round = 0; round < 2; round++) { /* it is gone the second time */
        cr_assert_eq(box_adopt(w.sandbox, slot, &adopted, &err), 0, "%s", err.text);
        cr_expect_eq(box_remove(adopted, &err), 0, "%s", err.text);
        box_free(adopted);
    }
    world_close(&w);
}

/* A second create under the same slot is refused, and the refused box is there to be removed. */
Test(life, a_failed_create_is_handed_out_for_removal)
{
    struct world w;
    struct box *first = NULL, *second = NULL, *third = NULL;
    struct err err;
    char slot[ID_HEX_128], missing[128];

    world_open(&w, "echo");
    world_prepare(&w);
    id_hex(slot, 16);
    cr_assert_eq(box_create(w.sandbox, slot, w.broker, w.work, NULL, NULL, &first, &err), 0, "%s", err.text);
    cr_expect_lt(box_create(w.sandbox, slot, w.broker, w.work, NULL, NULL, &second, &err), 0);
    cr_expect_eq(err.code, ERR_ENGINE);
    cr_assert_not_null(second);
    cr_expect_eq(box_remove(second, &err), 0, "%s", err.text);
    cr_expect_eq(box_remove(first, &err), 0, "%s", err.text);
    snprintf(missing, sizeof missing, "%s/missing", w.dir);
    id_hex(slot, 16);
    cr_expect_lt(box_create(w.sandbox, slot, missing, w.work, NULL, NULL, &third, &err), 0);
    cr_expect_eq(err.code, ERR_ENGINE, "a missing source: %s", err.text);
    cr_assert_not_null(third);
    cr_expect_eq(box_remove(third, &err), 0, "%s", err.text);
    box_free(first);
    box_free(second);
    box_free(third);
    world_close(&w);
}
