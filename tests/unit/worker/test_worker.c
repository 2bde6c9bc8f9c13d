/* Whole turns against a scripted broker. */
#include "base/clock.h"
#include "base/limits.h"
#include "deploy/worker/worker.h"
#include "rig.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

Test(worker, answers_with_the_models_text_and_asks_as_the_broker_wants)
{
    struct rig r;
    rig_start(&r, STEPS({.body = say("hi there")}));
    expect_text(rig_run_turn(&r, "{\"text\":\"hello \\\"w\\\"\\n\"}", NULL), "hi there");
    cr_assert_eq(r.calls, 1);
    cr_assert_str_eq(r.paths[0], "/model");
    cr_assert(strstr(r.heads[0], "\r\nHost: broker\r\n"));
    cr_assert(strstr(r.heads[0], "\r\nAuthorization: Bearer " DUMMY_KEY "\r\n"));
    cr_assert_eq(message_count(&r, 0), 2);
    cr_assert_str_eq(json_str(rig_message(&r, 0, 0), "role"), "user");
    cr_assert_str_eq(json_str(rig_message(&r, 0, 0), "content"), "hello \"w\"\n");
    const char *system = system_of(&r, 0);
    cr_assert_eq(strncmp(system, "Be kind.\n\n", 10), 0);
    cr_assert(strstr(system, "the time zone here is Europe/Berlin"));
    cr_assert(strstr(system, "{\"id\":\"u1\",\"name\":\"Ann\"}"));
    rig_done(&r);
}

Test(worker, the_second_turn_knows_the_first_and_reset_forgets)
{
    struct rig r;
    rig_start(
        &r, STEPS({.body = say("one")}, {.body = say("two")}, {.body = say("three")}, {.body = say("four")}));
    expect_text(rig_run_turn(&r, "{\"text\":\"first\"}", NULL), "one");
    expect_text(rig_run_turn(&r, "{\"text\":\"second\",\"speaker\":{\"id\":\"u2\",\"name\":\"Bob\"}}", NULL),
                "two");
    cr_assert_eq(message_count(&r, 1), 4);
    cr_assert_str_eq(json_str(rig_message(&r, 1, 2), "content"), "first");
    cr_assert_str_eq(json_str(rig_message(&r, 1, 1), "content"), "one");
    cr_assert(strstr(system_of(&r, 1), "oldest first: [\"Ann\"]"));
    expect_text(rig_run_turn(&r, "{\"text\":\"third\",\"reset\":true}", NULL), "three");
    cr_assert_eq(message_count(&r, 2), 2);
    expect_text(rig_run_turn(&r, "{\"text\":\"fourth\"}", NULL), "four");
    cr_assert_eq(message_count(&r, 3), 4, "only the exchange of the reset turn is known");
    cr_assert_str_eq(json_str(rig_message(&r, 3, 2), "content"), "third");
    rig_done(&r);
}

Test(worker, a_failed_turn_leaves_the_history_and_a_pending_reset_alone)
{
    struct rig r;
    rig_start(&r, STEPS({.body = say("one")}, {.status = 502, .body = "{\"error\":{\"code\":\"upstream\"}}"},
                        {.body = say("three")}));
    expect_text(rig_run_turn(&r, NULL, NULL), "one");
    char *before = rig_file(&r, ".cloister/history.json");
    json_decref(rig_run_turn(&r, "{\"reset\":true,\"text\":\"lost\"}", NULL));
    char *after = rig_file(&r, ".cloister/history.json");
    cr_assert_str_eq(before, after);
    expect_text(rig_run_turn(&r, NULL, NULL), "three");
    cr_assert_eq(message_count(&r, 2), 4);
    free(before);
    free(after);
    rig_done(&r);
}

Test(worker, broker_refusals_become_generic_sentences)
{
    static const struct {
        int status;
        const char *text;
    } cases[] = {{410, "The turn was stopped."},
                 {429, "The turn used up its model calls."},
                 {502, "The model did not give a usable answer."},
                 {504, "The model did not give a usable answer."},
                 {413, "The turn is too large."}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rig r;
        rig_start(&r, STEPS({.status = cases[i].status,
                             .body = "{\"error\":{\"code\":\"secret-code\",\"message\":\"secret-text\"}}"}));
        expect_text(rig_run_turn(&r, NULL, NULL), cases[i].text);
        rig_done(&r);
    }
}

Test(worker, a_long_answer_is_cut_between_characters_and_says_so)
{
    struct rig r;
    char *text = malloc(4 * 120000 + 1);
    for (size_t i = 0; i < 120000; i++)
        memcpy(text + 4 * i, "\xF0\x9F\x90\x9D", 4);
    text[4 * 120000] = '\0';
    rig_start(&r, STEPS({.body = say(text)}));
    json_t *reply = rig_run_turn(&r, NULL, NULL);
    const char *got = json_str(reply, "text");
    cr_assert_eq(strlen(got), 4 * (LIMIT_REPLY_TEXT_CHARS - 6) + 6);
    cr_assert_str_eq(got + strlen(got) - 6, " [cut]");
    json_decref(reply);
    free(text);
    rig_done(&r);
}

Test(worker, a_long_message_is_cut_and_says_so)
{
    struct rig r;
    struct buf turn = BUF_INIT(300000);
    struct err err;
    cr_assert_eq(buf_adds(&turn, "{\"text\":\"", &err), 0);
    for (int i = 0; i < 20000; i++)
        cr_assert_eq(buf_adds(&turn, "\xE2\x82\xAC", &err), 0);
    cr_assert_eq(buf_adds(&turn, "\"}", &err), 0);
    rig_start(&r, STEPS({.body = say("ok")}));
    expect_text(rig_run_turn(&r, turn.data, NULL), "ok");
    const char *sent = json_str(rig_message(&r, 0, 0), "content");
    cr_assert_leq(strlen(sent), LIMIT_WORKER_MESSAGE);
    cr_assert_gt(strlen(sent), LIMIT_WORKER_MESSAGE - 4);
    cr_assert_str_eq(sent + strlen(sent) - 6, " [cut]");
    buf_free(&turn);
    rig_done(&r);
}

Test(worker, hostile_state_files_start_afresh)
{
    static const char *const bad[] = {"",
                                      "{",
                                      "[",
                                      "null",
                                      "[[[[[[",
                                      "{\"version\":1}",
                                      "[1,2]",
                                      "[{\"speaker\":1,\"user\":2,\"assistant\":3}]",
                                      "{\"version\":1,\"channel\":[],\"speakers\":{}}",
                                      "{\"version\":1,\"channel\":{\"k\":1},\"speakers\":{}}",
                                      "{\"version\":2,\"channel\":{},\"speakers\":{}}",
                                      "{\"version\":1,\"channel\":{},\"speakers\":{\"a\":7}}",
                                      "{\"version\":1,\"channel\":{\"\":\"v\"},\"speakers\":{}}",
                                      "\xff\xfe",
                                      "{\"a\":1,\"a\":2}"};
    struct rig r;
    rig_start(&r, STEPS({.body = call(
                             "[[\"a\",\"memory_set\",\"{\\\"scope\\\":\\\"channel\\\",\\\"key\\\":\\\"k\\\","
                             "\\\"value\\\":\\\"v\\\"}\"]]")},
                        {.body = say("ok")}));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        rig_put(&r, ".cloister/memory.json", bad[i]);
        rig_put(&r, ".cloister/history.json", bad[i]);
        rig_script(&r, r.steps, r.step_count);
        expect_text(rig_run_turn(&r, NULL, NULL), "ok");
        cr_assert_eq(message_count(&r, 0), 2, "case %zu", i);
        char *memory = rig_file(&r, ".cloister/memory.json");
        cr_assert_str_eq(memory, "{\"version\":1,\"channel\":{\"k\":\"v\"},\"speakers\":{}}");
        free(memory);
    }
    rig_done(&r);
}

Test(worker, an_invalid_turn_is_refused_before_anything_is_done)
{
    struct rig r;
    char *big = malloc(LIMIT_TURN_LINE + 2);
    memset(big, ' ', LIMIT_TURN_LINE + 1);
    big[LIMIT_TURN_LINE + 1] = '\0';
    rig_start(&r, STEPS({.body = say("no")}));
    expect_text(rig_run(&r, "{\"version\":1}", NULL), "The worker did not accept the turn.");
    expect_text(rig_run(&r, "", NULL), "The worker did not accept the turn.");
    expect_text(rig_run(&r, "{}\n{}", NULL), "The worker did not accept the turn.");
    expect_text(rig_run(&r, big, NULL), "The turn is too large.");
    expect_text(rig_run_turn(&r, "{\"workspace\":\"/nonexistent\"}", NULL), "The worker failed.");
    cr_assert_eq(r.calls, 0);
    free(big);
    rig_done(&r);
}

Test(worker, gives_up_at_its_deadline_when_the_broker_hangs)
{
    struct rig r;
    rig_start(&r, STEPS({.hang = true}));
    int64_t began = clock_mono_ms();
    expect_text(rig_run_turn(&r, "{\"deadline_ms\":300}", NULL), "The turn reached its deadline.");
    int64_t took = clock_mono_ms() - began;
    cr_assert(took >= 300 && took < 3000, "%lld ms", (long long)took);
    rig_done(&r);
}

/* A worker process: its pid, and the ends of its pipes. */
static pid_t spawn(const struct rig *r, int *in, int *out)
{
    int to[2], from[2];
    cr_assert_eq(pipe2(to, O_CLOEXEC), 0);
    cr_assert_eq(pipe2(from, O_CLOEXEC), 0);
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0) {
        close(to[1]);
        _exit(worker_main(to[0], from[1], r->sock));
    }
    close(to[0]);
    close(from[1]);
    *in = to[1];
    *out = from[0];
    return pid;
}

static void expect_line(int out, const char *want)
{
    char got[512] = "";
    size_t len = 0;
    struct pollfd p = {.fd = out, .events = POLLIN};
    while (len + 1 < sizeof got && poll(&p, 1, 5000) > 0) {
        ssize_t n = read(out, got + len, sizeof got - 1 - len);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    cr_assert_str_eq(got, want);
}

static void expect_exit(pid_t pid, int code)
{
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status), "status %d", status);
    cr_assert_eq(WEXITSTATUS(status), code);
}

Test(worker, sigterm_aborts_a_call_at_once, .timeout = 30)
{
    struct rig r;
    int in, out;
    rig_start(&r, STEPS({.hang = true}));
    char *line = rig_turn(&r, NULL);
    pid_t pid = spawn(&r, &in, &out);
    cr_assert_eq(write(in, line, strlen(line)), (ssize_t)strlen(line));
    cr_assert_eq(write(in, "\n", 1), 1);
    cr_assert(rig_wait_calls(&r, 1));
    int64_t began = clock_mono_ms();
    kill(pid, SIGTERM);
    expect_line(out, "{\"ok\":false,\"text\":\"The turn was stopped.\"}\n");
    expect_exit(pid, 1);
    cr_assert_lt(clock_mono_ms() - began, 1000);
    free(line);
    close(in);
    close(out);
    rig_done(&r);
}

Test(worker, waits_for_its_turn_answers_at_the_newline_and_ends_with_its_input, .timeout = 30)
{
    struct rig r;
    int in, out;
    rig_start(&r, STEPS({.body = say("hi")}));
    char *line = rig_turn(&r, NULL);
    pid_t pid = spawn(&r, &in, &out);
    for (size_t i = 0; line[i]; i++)
        cr_assert_eq(write(in, line + i, 1), 1);
    struct pollfd p = {.fd = out, .events = POLLIN};
    cr_assert_eq(poll(&p, 1, 50), 0, "nothing before the newline");
    cr_assert_eq(write(in, "\n", 1), 1);
    expect_line(out, "{\"ok\":true,\"text\":\"hi\"}\n");
    expect_exit(pid, 0);
    close(in);
    close(out);

    pid = spawn(&r, &in, &out);
    close(in);
    expect_line(out, "{\"ok\":false,\"text\":\"The worker did not accept the turn.\"}\n");
    expect_exit(pid, 1);
    close(out);

    pid = spawn(&r, &in, &out);
    kill(pid, SIGTERM);
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFSIGNALED(status) || WEXITSTATUS(status) == 1, "before or after its handler was there");
    close(in);
    close(out);
    free(line);
    rig_done(&r);
}

Test(worker, the_history_is_on_disk_before_the_newline, .timeout = 30)
{
    struct rig r;
    int in, out;
    char one[1];
    rig_start(&r, STEPS({.body = say("hi")}));
    char *line = rig_turn(&r, NULL);
    pid_t pid = spawn(&r, &in, &out);
    cr_assert_eq(write(in, line, strlen(line)), (ssize_t)strlen(line));
    close(in);
    cr_assert_eq(read(out, one, 1), 1);
    kill(pid, SIGKILL);
    char *history = rig_file(&r, ".cloister/history.json");
    cr_assert(history && strstr(history, "\"assistant\":\"hi\""));
    waitpid(pid, NULL, 0);
    free(history);
    free(line);
    close(out);
    rig_done(&r);
}
