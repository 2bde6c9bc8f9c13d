#include "tests/unit/broker/client.h"
#include "tests/unit/scratch.h"

#include <dirent.h>

static struct rig rig;

TestSuite(life, .timeout = 60);

static void open_unbound(void)
{
    rig_prepare(&rig);
    rig_start(&rig, rig_settings("embedded:echo"));
}

Test(life, the_socket_is_private)
{
    struct stat st;
    mode_t before = umask(0);

    open_unbound();
    cr_assert(stat(rig.path, &st) == 0 && S_ISSOCK(st.st_mode));
    cr_assert((st.st_mode & 07777) == 0600, "%o", st.st_mode);
    umask(before);
    rig_close(&rig);
}

Test(life, gone_before_bind_and_after_close)
{
    open_unbound();
    client_expect(&rig, HELLO, 410, "gone");
    rig_bind(&rig);
    client_expect(&rig, HELLO, 200, "hello");
    broker_close(rig.broker);
    client_expect(&rig, HELLO, 410, "gone");
    broker_close(rig.broker);
    cr_assert(rig.n_calls == 1);
    rig_close(&rig);
}

/* 410 comes before everything else, so that an unbound socket tells nothing. */
Test(life, gone_for_every_request)
{
    open_unbound();
    int fd = client_connect(&rig);
    client_send(fd, "GET /x?y HTTP/1.1\r\nHost: h\r\nCookie: a\r\n\r\n");
    struct reply r = client_read(fd);
    cr_assert(r.status == 410, "%s", r.text);
    free(r.text);
    close(fd);
    rig_close(&rig);
}

Test(life, a_connection_made_before_bind_works_after_it)
{
    open_unbound();
    int fd = client_connect(&rig);
    rig_bind(&rig);
    char *request = client_request(HELLO);
    client_send(fd, request);
    struct reply r = client_read(fd);
    cr_assert(r.status == 200);
    free(r.text);
    free(request);
    close(fd);
    rig_close(&rig);
}

Test(life, only_the_turns_container_may_call)
{
    struct broker_turn turn;

    open_unbound();
    turn = rig_turn(&rig);
    turn.container_id = "0f0e0d0c0b0a09080706050403020100ffeeddccbbaa99887766554433221100";
    cr_assert(broker_bind(rig.broker, &turn, &rig.err) == 0);
    client_expect(&rig, HELLO, 403, "forbidden");
    cr_assert(rig.n_calls == 0);
    rig_close(&rig);
}

Test(life, a_broker_has_one_turn)
{
    struct broker_turn turn;

    open_unbound();
    turn = rig_turn(&rig);
    rig_bind(&rig);
    cr_assert(broker_bind(rig.broker, &turn, &rig.err) == -1 && rig.err.code == ERR_CONFLICT);
    broker_close(rig.broker);
    cr_assert(broker_bind(rig.broker, &turn, &rig.err) == -1 && rig.err.code == ERR_CONFLICT);
    rig_close(&rig);
}

Test(life, ids_must_fit)
{
    char longer[130];
    struct broker_turn turn;

    memset(longer, 'a', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    open_unbound();
    turn = rig_turn(&rig);
    turn.container_id = "";
    cr_assert(broker_bind(rig.broker, &turn, &rig.err) == -1 && rig.err.code == ERR_INVALID);
    turn.container_id = longer;
    cr_assert(broker_bind(rig.broker, &turn, &rig.err) == -1 && rig.err.code == ERR_INVALID);
    turn = rig_turn(&rig);
    turn.turn_id = longer;
    cr_assert(broker_bind(rig.broker, &turn, &rig.err) == -1 && rig.err.code == ERR_INVALID);
    rig_bind(&rig);
    rig_close(&rig);
}

Test(life, the_path_is_bounded)
{
    char dir[200];
    struct broker *broker = NULL;

    open_unbound();
    memset(dir, 'd', sizeof dir);
    dir[0] = '/';
    dir[LIMIT_SOCKET_PATH - strlen("/broker.sock") + 1] = '\0';
    cr_assert(broker_new(rig.env, dir, &broker, &rig.err) == -1 && strstr(rig.err.text, "longer than 100"));
    dir[LIMIT_SOCKET_PATH - strlen("/broker.sock")] = '\0';
    cr_assert(broker_new(rig.env, dir, &broker, &rig.err) == -1 && !strstr(rig.err.text, "longer"), "%s",
              rig.err.text);
    /* a second one in the same folder does not take the first one's socket away */
    cr_assert(broker_new(rig.env, rig.dir, &broker, &rig.err) == -1);
    rig_bind(&rig);
    client_expect(&rig, HELLO, 200, "hello");
    rig_close(&rig);
}

static unsigned open_files(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/fd");

    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

Test(life, making_and_freeing_is_quick_and_leaves_nothing)
{
    enum { ROUNDS = 200 };
    struct broker *broker = NULL;

    open_unbound();
    broker_free(STEAL(rig.broker));
    unsigned files = open_files();
    int64_t start = clock_mono_us();
    for (int i = 0; i < ROUNDS; i++) {
        struct broker_turn turn = rig_turn(&rig);
        cr_assert(broker_new(rig.env, rig.dir, &broker, &rig.err) == 0);
        cr_assert(broker_bind(broker, &turn, &rig.err) == 0);
        broker_close(broker);
        broker_free(broker);
    }
    int64_t each = (clock_mono_us() - start) / ROUNDS;
    fprintf(stderr, "broker_new, bind, close, free: %d us\n", (int)each);
    cr_assert(each < 2000, "%d us", (int)each);
    cr_assert(open_files() == files);
    rig_close(&rig);
}

Test(life, free_with_open_connections_is_quick)
{
    int fds[8];

    open_unbound();
    rig_bind(&rig);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        fds[i] = client_connect(&rig);
        client_send(fds[i], "POST /model HTTP/1.1\r\n");
    }
    int64_t start = clock_mono_ms();
    broker_free(STEAL(rig.broker));
    cr_assert(clock_mono_ms() - start < 200);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        cr_assert(client_at_end(fds[i]));
        close(fds[i]);
    }
    rig_close(&rig);
}

Test(life, a_client_that_does_not_read_blocks_nobody)
{
    char *text = malloc(200001), *body = malloc(200100);
    int fds[4];

    memset(text, 'x', 200000);
    text[200000] = '\0';
    sprintf(body, "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}", text);
    open_unbound();
    rig_bind(&rig);
    char *request = client_request(body);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        fds[i] = client_connect(&rig);
        client_send(fds[i], request);
        struct broker_stats stats = {0};
        for (int64_t end = clock_mono_ms() + 5000; stats.completion_tokens < (i + 1) * 50000;) {
            cr_assert(clock_mono_ms() < end, "call %zu does not end", i);
            broker_stats(rig.broker, &stats);
        }
    }
    client_expect(&rig, HELLO, 200, "hello");
    int64_t start = clock_mono_ms();
    broker_close(rig.broker);
    broker_free(STEAL(rig.broker));
    cr_assert(clock_mono_ms() - start < 500);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        close(fds[i]);
    free(request);
    free(body);
    free(text);
    rig_close(&rig);
}

/* --- settings ------------------------------------------------------------------------------------------- */

static void refused(struct broker_settings settings, const char *word)
{
    struct broker_env *env = NULL;
    struct err err = {0};

    cr_assert(broker_env_new(&settings, &env, &err) == -1 && err.code == ERR_CONFIG && strstr(err.text, word),
              "%s: %s", word, err.text);
    cr_assert(env == NULL);
}

Test(life, settings_are_checked)
{
    struct broker_settings s = rig_settings("https://h/v1");
    struct err err;

    rig_prepare(&rig);
    s.allow_http = false;
    cr_assert(broker_settings_check(&s, &err) == 0);
    s.model_url = "http://h/v1";
    refused(s, "model.url");
    s.allow_http = true;
    cr_assert(broker_settings_check(&s, &err) == 0);
    s.model_url = "embedded:other";
    refused(s, "model.url");
    s.model_url = "embedded:script";
    refused(s, "allow_script");
    s.allow_script = true;
    cr_assert(broker_settings_check(&s, &err) == 0);
    s.model_name = "";
    refused(s, "model.name");
    s.model_name = "m";
    static const unsigned tokens[] = {0, 32769}, calls[] = {0, 1001};
    for (int i = 0; i < 2; i++) {
        s.max_tokens = tokens[i];
        refused(s, "max_tokens");
        s.max_tokens = 32768;
        s.max_calls = calls[i];
        refused(s, "max_calls");
        s.max_calls = 1000;
    }
    cr_assert(broker_settings_check(&s, &err) == 0);
    rmdir(rig.dir);
}

Test(life, a_short_credential_is_refused_at_start)
{
    struct broker_settings s = rig_settings("embedded:echo");
    char path[96];

    rig_prepare(&rig);
    snprintf(path, sizeof path, "%s/key", rig.dir);
    scratch_write(path, "short-secret", 12);
    cr_assert(credential_from_file(path, &s.credential, &rig.err) == 0);
    struct broker_env *env = NULL;
    struct err err;
    cr_assert(broker_env_new(&s, &env, &err) == -1 && err.code == ERR_CONFIG);
    cr_assert(strstr(err.text, "model.credential") && !strstr(err.text, "short-secret"), "%s", err.text);
    unlink(path);
    cr_assert(broker_env_new(&s, &env, &err) == -1 && err.code == ERR_CONFIG, "%s", err.text);
    credential_source_free(s.credential);
    rmdir(rig.dir);
}
