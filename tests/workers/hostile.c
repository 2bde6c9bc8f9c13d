/* workers/hostile.c: a worker that misbehaves. argv[1] is the mode; the turn is one line of JSON on stdin. */
#include "hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TURN_MAX  (512 * 1024)
#define BIG_REPLY (3 * 1024 * 1024)
#define MIB       (1024 * 1024)

void put(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno != EINTR)
            exit(9);
        if (n > 0) {
            data += n;
            len -= (size_t)n;
        }
    }
}

void reply(const char *text, json_t *data)
{
    json_t *object = json_pack("{s:b, s:s, s:o*}", "ok", 1, "text", text, "data", data);
    char *line = object ? json_dumps(object, JSON_COMPACT) : NULL;

    if (!line)
        exit(9);
    put(1, line, strlen(line));
    put(1, "\n", 1);
    free(line);
    json_decref(object);
}

static void pause_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&t, NULL);
}

/* The turn as it came, read once. */
static const char *turn_line(void)
{
    static char line[TURN_MAX + 1];
    static size_t len;
    static bool done;

    while (!done && len < TURN_MAX && !memchr(line, '\n', len)) {
        ssize_t n = read(0, line + len, TURN_MAX - len);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    done = true;
    return line;
}

/* The turn's text; "no turn" when stdin holds none. */
static void read_turn(char *out, size_t size)
{
    const char *line = turn_line();
    json_t *turn = json_loadb(line, strlen(line), JSON_DISABLE_EOF_CHECK, NULL);
    const char *text = json_string_value(json_object_get(turn, "text"));

    snprintf(out, size, "%s", text ? text : "no turn");
    json_decref(turn);
}

static void echo(void)
{
    static char text[TURN_MAX];

    read_turn(text, sizeof text);
    reply(text, NULL);
}

static void for_ever(void)
{
    for (;;)
        pause();
}

static void on_term(int sig)
{
    (void)sig;
    _exit(0);
}

static void ignore_term(void)
{
    signal(SIGTERM, SIG_IGN);
    for_ever();
}

/* Ends itself when asked to, after it has said something on both outputs. */
static void sleep_politely(void)
{
    signal(SIGTERM, on_term);
    put(1, "half a reply", 12);
    put(2, "still sleeping\n", 15);
    for_ever();
}

static void flood(int fd)
{
    static char block[65536];

    memset(block, 'x', sizeof block);
    if (fd == 2)
        for (size_t i = 79; i < sizeof block; i += 80)
            block[i] = '\n';
    for (;;)
        put(fd, block, sizeof block);
}

/* Every process makes processes; the limit answers EAGAIN, and all go on trying. */
static void fork_bomb(void)
{
    for (;;)
        if (fork() < 0)
            pause_ms(1);
}

static void fork_to_the_limit(void)
{
    char text[64];

    read_turn(text, sizeof text);
    for (;;) {
        pid_t pid = fork();
        if (pid == 0)
            for_ever();
        if (pid < 0) {
            fprintf(stderr, "fork: %s\n", strerror(errno));
            return;
        }
    }
}

/* Tells that it failed, and stays: the cgroup can be read for as long as it likes. */
static void fail_at_the_pid_limit(void)
{
    static const char failed[] = "{\"ok\":false,\"text\":\"no more processes\"}\n";

    fork_to_the_limit();
    put(1, failed, sizeof failed - 1);
    for_ever();
}

static void exit_at_the_pid_limit(void)
{
    fork_to_the_limit();
    exit(1);
}

/* The turn is read first: what becomes of a process that exits before it was taken hold of is not counted. */
static void eat_memory(void)
{
    char text[64];

    read_turn(text, sizeof text);
    for (;;) {
        char *p = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p != MAP_FAILED)
            memset(p, 1, 16 * MIB);
    }
}

static void eat_memory_in_a_child(void)
{
    int status = 0;

    pid_t pid = fork();
    if (pid == 0) {
        int fd = open("/proc/self/oom_score_adj", O_WRONLY);
        if (fd >= 0)
            put(fd, "1000", 4);
        eat_memory();
    }
    close(0);
    waitpid(pid, &status, 0);
    reply(WIFSIGNALED(status) ? "the child was killed" : "the child lives", NULL);
    for_ever(); /* so that the cgroup can be read */
}

static void big_reply(void)
{
    char *text = malloc(BIG_REPLY + 1);

    memset(text, 'b', BIG_REPLY);
    text[BIG_REPLY] = '\0';
    reply(text, NULL);
}

/* Appends to a file of the workspace every 10 ms, so that a test can see who still writes. */
static void write_on(const char *path, int times)
{
    for (int i = 0; i < times; i++) {
        int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
        if (fd >= 0) {
            put(fd, "more\n", 5);
            close(fd);
        }
        pause_ms(10);
    }
}

static void reply_then_write(void)
{
    signal(SIGTERM, SIG_IGN);
    write_on("/workspace/after-reply-child", 1);
    if (fork() == 0) {
        write_on("/workspace/after-reply-child", 500);
        exit(0);
    }
    echo();
    write_on("/workspace/after-reply", 500);
}

static void close_outputs(void)
{
    signal(SIGTERM, on_term);
    put(1, "last words", 10);
    close(1);
    close(2);
    for_ever();
}

/* Never reads its turn, which must not keep anyone waiting. */
static void deaf(void)
{
    pause_ms(300);
    reply("i did not listen", NULL);
    for_ever();
}

static void crash(void)
{
    put(2, "about to crash\n", 15);
    signal(SIGSEGV, SIG_DFL); /* as process 1 only the kernel's own signal ends it */
    *(volatile int *)8 = 1;
}

static void exit_now(void)
{
    put(2, "leaving\n", 8);
    exit(3);
}

static void garbage(void)
{
    static const char text[] = "\xff\xfe{\"ok\":tru\x01\x1b[31m]]\n";

    put(1, text, sizeof text - 1);
}

static void no_newline(void)
{
    put(1, "{\"ok\":true,\"text\":\"no newline\"}", 31);
}

static void silent(void)
{
}

static void flood_stdout(void)
{
    flood(1);
}

static void flood_stderr(void)
{
    flood(2);
}

/* More than is kept of stderr, in characters of one to four bytes. */
static void wide_stderr(void)
{
    static const char text[] = "a\u00e9\u20ac\U0001d11e";
    static char page[400 * (sizeof text - 1)];

    for (size_t i = 0; i < sizeof page; i++)
        page[i] = text[i % (sizeof text - 1)];
    for (int i = 0; i < 300; i++)
        put(2, page, sizeof page);
    sleep(1); /* the engine hands on the two outputs separately, and the turn ends at the reply */
    reply("said a lot", NULL);
}

/* Fills the workspace for some seconds, a mebibyte at a time. */
static void grow(void)
{
    static char block[MIB];

    signal(SIGTERM, on_term);
    memset(block, 'g', sizeof block);
    int fd = open("/workspace/grown", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; fd >= 0 && i < 200; i++) {
        put(fd, block, sizeof block);
        pause_ms(50);
    }
    reply("grown", NULL);
}

static void dump(void)
{
    reply("dumped", dump_all(turn_line()));
}

static void fail(void)
{
    static const char failed[] = "{\"ok\":false,\"text\":\"I cannot\"}\n";

    put(2, "this is why\n", 12);
    put(1, failed, sizeof failed - 1);
}

/* As soon as it lives, while the service is still busy with its start. */
static void call_early(void)
{
    for (int i = 0; i < 12; i++)
        json_decref(ask_broker(""));
    reply("called early", NULL);
}

static void murmur(void)
{
    put(2, "by the way\n", 11);
    reply("said", NULL);
}

static void by_text(void);

/* "count MS": notes in the workspace that this turn ran, then takes so long for its reply. */
static void count_runs(void)
{
    char text[64], note[128];
    const char *line = turn_line();
    json_t *turn = json_loadb(line, strlen(line), JSON_DISABLE_EOF_CHECK, NULL);
    const char *id = json_string_value(json_object_get(turn, "id"));

    read_turn(text, sizeof text);
    int fd = open("/workspace/runs", O_WRONLY | O_CREAT | O_APPEND, 0600);
    int len = snprintf(note, sizeof note, "%s\n", id ? id : "no id");
    if (fd < 0)
        exit(9);
    put(fd, note, (size_t)len);
    close(fd);
    pause_ms(strtol(text + strcspn(text, " "), NULL, 10));
    reply(text, NULL);
}

static void seccomp_probe(void)
{
    reply("probed", probe_calls());
}

static void inspect_self(void)
{
    reply("looked around", look_around());
}

static const struct {
    const char *name;
    void (*run)(void);
} modes[] = {
    {"echo", echo},
    {"ignore-term", ignore_term},
    {"flood", flood_stdout},
    {"stderr-flood", flood_stderr},
    {"forkbomb", fork_bomb},
    {"pid-limit", fail_at_the_pid_limit},
    {"pid-limit-exit", exit_at_the_pid_limit},
    {"eat-memory", eat_memory},
    {"child-oom", eat_memory_in_a_child},
    {"exit-now", exit_now},
    {"silent", silent},
    {"garbage", garbage},
    {"big-reply", big_reply},
    {"sleep", sleep_politely},
    {"reply-then-write", reply_then_write},
    {"no-newline", no_newline},
    {"crash", crash},
    {"close-stdout", close_outputs},
    {"deaf", deaf},
    {"seccomp-probe", seccomp_probe},
    {"inspect-self", inspect_self},
    {"wide-stderr", wide_stderr},
    {"grow", grow},
    {"dump", dump},
    {"fail", fail},
    {"murmur", murmur},
    {"call-early", call_early},
    {"count", count_runs},
    {"by-text", by_text},
};

/* The first word of the turn's text names the mode. */
static void by_text(void)
{
    char text[64];

    read_turn(text, sizeof text);
    text[strcspn(text, " ")] = '\0';
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        if (strcmp(text, modes[i].name) == 0 && modes[i].run != by_text)
            modes[i].run();
}

/* With "modes" it prints their names, one a line: tests/workers/images makes an image of each. */
int main(int argc, char **argv)
{
    for (size_t i = 0; argc == 2 && i < sizeof modes / sizeof modes[0]; i++) {
        if (strcmp(argv[1], "modes") == 0) {
            puts(modes[i].name);
        } else if (strcmp(argv[1], modes[i].name) == 0) {
            modes[i].run();
            return 0;
        }
    }
    return argc == 2 && strcmp(argv[1], "modes") == 0 ? 0 : 2;
}
