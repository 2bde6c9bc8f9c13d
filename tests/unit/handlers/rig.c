#include "rig.h"

#include "schemas/schema.h"

#include "base/id.h"
#include "base/log.h"
#include "base/secret.h"
#include "handlers/openapi.h"
#include "http/http.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* The binary embeds the document; so does the test. */
__asm__(".section .rodata\n"
        "openapi_begin: .incbin \"openapi.yaml\"\n"
        "openapi_end: .byte 0\n"
        ".previous\n");
extern const char openapi_begin[], openapi_end[];
const char *const embedded_openapi = openapi_begin;
const unsigned long embedded_openapi_len = 0; /* not a constant for the compiler; tests use strlen */

static bool ready(void *host, char reason[SERVICE_REASON_SIZE])
{
    struct rig *r = host;
    snprintf(reason, SERVICE_REASON_SIZE, "engine_unavailable: the engine does not answer");
    return !r->unready;
}

static bool has_room(void *host)
{
    return !((struct rig *)host)->no_room;
}

static bool stop_channel(void *host, const char *channel)
{
    struct rig *r = host;
    snprintf(r->stopped, sizeof r->stopped, "%s", channel);
    return true;
}

/* A turn runs between rig_begin_one and rig_end; its container dies with it. */
static bool cancel_turn(void *host, const char *turn_id)
{
    struct rig *r = host;

    snprintf(r->canceled, sizeof r->canceled, "%s", turn_id);
    return true;
}

static bool turn_alive(void *host, const char *turn_id)
{
    (void)turn_id;
    return atomic_load(&((struct rig *)host)->alive);
}

static bool blocked(void *host, const char *channel)
{
    (void)channel;
    return ((struct rig *)host)->blocked;
}

static int listen_unix(const char *path)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(sa.sun_path, sizeof sa.sun_path, "%s", path);
    cr_assert_eq(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    cr_assert_eq(listen(fd, 64), 0);
    return fd;
}

void rig_start(struct rig *r, unsigned per_channel)
{
    struct json_faults faults = {0};
    struct err err;
    unsigned bound = per_channel ? per_channel : 1000;
    struct queue_limits limits = {bound, 2 * bound, 3 * bound};

    signal(SIGPIPE, SIG_IGN);
    memset(r, 0, sizeof *r);
    cr_assert_eq(secret_init(&err), 0);
    snprintf(r->dir, sizeof r->dir, "/tmp/handlers-XXXXXX");
    cr_assert(mkdtemp(r->dir));
    snprintf(r->state, sizeof r->state, "%s/db", r->dir);
    snprintf(r->socket, sizeof r->socket, "%s/admin", r->dir);
    cr_assert_eq(config_load(NULL, &r->config, &faults, &err), 0, "%s", err.text);
    cr_assert_eq(db_open(r->state, DB_WRITE, &r->db, &err), 0, "%s", err.text);
    cr_assert_eq(known_new(r->db, &r->keys, &err), 0, "%s", err.text);
    cr_assert_eq(queue_new(&limits, &r->queue, &err), 0);
    cr_assert_eq(bus_new(&r->bus, &err), 0);
    r->service =
        (struct service){.db = r->db,
                         .keys = r->keys,
                         .queue = r->queue,
                         .bus = r->bus,
                         .config = r->config,
                         .build = "test",
                         .host = {r, ready, has_room, stop_channel, cancel_turn, turn_alive, blocked}};
    struct http_config api = {.routes = service_routes,
                              .authorize = service_authorize,
                              .context = &r->service,
                              .address = "127.0.0.1",
                              .listen_fd = -1,
                              .threads = 2,
                              .beat_ms = 300};
    struct http_config admin = {.routes = admin_routes,
                                .authorize = admin_authorize,
                                .context = &r->service,
                                .listen_fd = listen_unix(r->socket),
                                .threads = 1};
    log_set_level(LOG_WARN); /* not a line for each request */
    cr_assert_eq(http_server_start(&api, &r->api, &err), 0, "%s", err.text);
    cr_assert_eq(http_server_start(&admin, &r->admin, &err), 0, "%s", err.text);
}

void rig_stop(struct rig *r)
{
    queue_close(r->queue);
    http_server_stop(r->api, 5000);
    http_server_stop(r->admin, 5000);
    known_free(r->keys);
    db_close(r->db);
    queue_free(r->queue);
    bus_free(r->bus);
    config_free(r->config);
    DIR *dir = opendir(r->dir);
    for (struct dirent *e; dir && (e = readdir(dir));)
        unlinkat(dirfd(dir), e->d_name, 0);
    closedir(dir);
    cr_expect_eq(rmdir(r->dir), 0);
}

struct key_args {
    unsigned scopes;
    json_t *globs;
    char *id, *token;
};

static int key_job(struct store *st, void *arg, struct err *err)
{
    struct key_args *a = arg;
    return keys_create(st, "test", a->scopes, a->globs, clock_wall_ms(), a->id, a->token, err);
}

void rig_key(struct rig *r, unsigned scopes, const char *glob, char id[KEY_ID_SIZE],
             char token[KEY_TOKEN_SIZE])
{
    struct key_args a = {scopes, json_pack("[s]", glob), id, token};
    struct err err;

    cr_assert_eq(db_write(r->db, key_job, &a, &err), 0, "%s", err.text);
    json_decref(a.globs);
}

static int channel_job(struct store *st, void *arg, struct err *err)
{
    const char *key = arg;
    return channels_put(st, key + 1, key[0] == '1', -1, clock_wall_ms(), err);
}

void rig_channel(struct rig *r, const char *key, bool enabled)
{
    char arg[256];
    struct err err;

    snprintf(arg, sizeof arg, "%c%s", enabled ? '1' : '0', key);
    cr_assert_eq(db_write(r->db, channel_job, arg, &err), 0, "%s", err.text);
}

static int dial(struct rig *r, bool admin)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(http_server_port(r->api))};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(admin ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    snprintf(un.sun_path, sizeof un.sun_path, "%s", r->socket);
    int rc = admin ? connect(fd, (struct sockaddr *)&un, sizeof un)
                   : connect(fd, (struct sockaddr *)&in, sizeof in);
    cr_assert_eq(rc, 0);
    return fd;
}

int rig_send(struct rig *r, bool admin, const char *token, const char *method, const char *path,
             const char *extra, const char *body)
{
    char *text = NULL, length[96] = "", key[256] = "";
    int fd = dial(r, admin);

    if (body)
        snprintf(length, sizeof length, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                 strlen(body));
    if (token)
        snprintf(key, sizeof key, "Authorization: Bearer %s\r\n", token);
    int n = asprintf(&text, "%s %s HTTP/1.1\r\nHost: t\r\nConnection: close\r\n%s%s%s\r\n%s", method, path,
                     key, length, extra ? extra : "", body ? body : "");
    cr_assert_gt(n, 0);
    for (int sent = 0; sent < n;) {
        ssize_t m = send(fd, text + sent, (size_t)(n - sent), MSG_NOSIGNAL);
        if (m <= 0)
            break;
        sent += (int)m;
    }
    free(text);
    return fd;
}

/* Every answer keeps its schema, whatever the test is about: problems, turns, channels, keys, and lists of
 * them. */
static void check_one(const json_t *value)
{
    static const struct {
        const char *object, *schema;
    } table[] = {{"turn", "answers#turn"}, {"channel", "answers#channel"}, {"api_key", "answers#key"}};
    struct json_faults faults = {0};
    const char *object = json_str(value, "object");

    for (size_t i = 0; object && i < ARRAY_LEN(table); i++)
        if (strcmp(object, table[i].object) == 0)
            schema_check(table[i].schema, value, "", &faults);
    if (!object && json_object_get(value, "title"))
        schema_check("answers#problem", value, "", &faults);
    const json_t *first = json_array_get(faults.list, 0);
    cr_assert_eq(faults.total, 0, "%s: %s", first ? json_str(first, "pointer") : "",
                 first ? json_str(first, "detail") : "");
}

static void check_document(const struct answer *a)
{
    const json_t *data = json_object_get(a->body, "data");
    size_t i;
    json_t *one;

    check_one(a->body);
    json_array_foreach(data, i, one) {
        check_one(one);
    }
}

struct answer rig_receive(int fd)
{
    struct buf b = BUF_INIT(4 * 1024 * 1024);
    struct answer a = {0};
    struct err err;
    char piece[16384];
    int64_t deadline = clock_mono_ms() + 10000;

    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, clock_left_ms(deadline)) <= 0)
            cr_assert_fail("no answer within 10 s");
        ssize_t n = recv(fd, piece, sizeof piece, 0);
        if (n <= 0)
            break;
        cr_assert_eq(buf_add(&b, piece, (size_t)n, &err), 0);
    }
    close(fd);
    const char *end = b.data ? strstr(b.data, "\r\n\r\n") : NULL;
    cr_assert(end, "no whole head: %s", b.data ? b.data : "");
    sscanf(b.data, "HTTP/1.1 %d", &a.status);
    snprintf(a.head, sizeof a.head, "%.*s", (int)(end + 2 - b.data), b.data);
    if (json_parse(end + 4, strlen(end + 4), &a.body, &err) < 0)
        a.body = NULL;
    buf_free(&b);
    check_document(&a);
    return a;
}

void answer_free(struct answer *a)
{
    json_decref(a->body);
}

const char *answer_str(const struct answer *a, const char *member)
{
    const char *s = json_str(a->body, member);
    return s ? s : "";
}

struct answer rig_call(struct rig *r, const char *token, const char *method, const char *path,
                       const char *body)
{
    return rig_receive(rig_send(r, false, token, method, path, NULL, body));
}

struct answer rig_admin(struct rig *r, const char *method, const char *path, const char *body)
{
    return rig_receive(rig_send(r, true, NULL, method, path, NULL, body));
}

const char *turn_body(const char *channel, const char *text)
{
    static char body[1024];
    snprintf(body, sizeof body,
             "{\"channel\":\"%s\",\"speaker\":{\"id\":\"u1\",\"name\":\"Ada\"},\"text\":\"%s\"}", channel,
             text);
    return body;
}

struct start_args {
    const char *id;
    bool reset;
    int64_t seen;
};

static int start_job(struct store *st, void *arg, struct err *err)
{
    struct start_args *a = arg;
    char slot[ID_HEX_128];
    id_hex(slot, 16);
    return turns_start(st, a->id, slot, "boot", clock_wall_ms(), &a->reset, &a->seen, err);
}

void rig_begin_one(struct rig *r, char id[TURN_ID_SIZE], char **channel)
{
    struct queue_item item = {0};
    struct err err;

    cr_assert_eq(queue_pop(r->queue, 10000, &item), 0, "no turn came");
    snprintf(id, TURN_ID_SIZE, "%s", item.turn_id);
    struct start_args a = {.id = id};
    cr_assert_eq(db_write(r->db, start_job, &a, &err), 0, "%s", err.text);
    bus_publish(r->bus, id);
    *channel = item.channel;
}

static int end_job(struct store *st, void *arg, struct err *err)
{
    return turns_end(st, arg, err);
}

void rig_end(struct rig *r, const char *id, const char *channel, const char *reply)
{
    json_t *value = json_pack("{s:s}", "text", reply);
    CLEANUP(json_free)
    json_t *logs = json_pack("{s:{s:s, s:i, s:b}}", "stderr", "text", "noise", "bytes", 5, "truncated", 0);
    struct turn_end end = {.id = id,
                           .ending = END_NONE,
                           .reply = value,
                           .logs = logs,
                           .reset_seen = -1,
                           .now_ms = clock_wall_ms()};
    struct err err;

    cr_assert_eq(db_write(r->db, end_job, &end, &err), 0, "%s", err.text);
    bus_publish(r->bus, id);
    queue_done(r->queue, channel);
    json_decref(value);
}

void rig_run_one(struct rig *r, const char *reply, char id[TURN_ID_SIZE])
{
    char *channel = NULL;

    rig_begin_one(r, id, &channel);
    rig_end(r, id, channel, reply);
    free(channel);
}

void rig_wait_queued(struct rig *r, unsigned n)
{
    int64_t deadline = clock_mono_ms() + 10000;

    while (queue_waiting(r->queue) < n && clock_mono_ms() < deadline)
        clock_sleep_ms(1);
    cr_assert_geq(queue_waiting(r->queue), n);
}
