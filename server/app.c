#include "app.h"

#include "auth/known.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/log.h"
#include "base/proc.h"
#include "build.h"
#include "handlers/service.h"
#include "notices.h"
#include "pool/pool.h"
#include "storage/channels.h"
#include "storage/lock.h"
#include "storage/turns.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define HTTP_THREADS  2
#define ADMIN_CLIENTS 64
#define ANSWER_ALL_MS 5000 /* for parked clients to take their answers at the stop */

struct app {
    const struct config *config;
    const struct roots *roots;
    char installation[33], boot[ID_HEX_128];
    int lock, signals;
    int stopped; /* eventfd: a second signal is not waited for any more */
    struct db *db;
    struct known *keys;
    struct bus *bus;
    struct queue *queue;
    struct broker_env *broker_env;
    struct sandbox *sandbox;
    struct pool *pool;
    struct service service;
    struct http_server *api, *admin;
    _Atomic bool hurry; /* a second signal came */
};

int app_broker_env(const struct config *config, struct broker_env **ret, struct err *err)
{
    CLEANUP(credential_source_free_p) struct credential_source *credential = NULL;
    struct broker_settings s = {.model_url = config->model.url,
                                .model_name = config->model.name,
                                .max_tokens = config->model.max_tokens,
                                .max_calls = config->model.max_calls,
                                .allow_http = config->model.allow_http,
                                .allow_script = config->model.allow_script};
    int rc = 0;

    if (config->model.credential_file)
        rc = credential_from_file(config->model.credential_file, &credential, err);
    else if (config->model.credential_command)
        rc = credential_from_command(config->model.credential_command, &credential, err);
    else if (config->model.credential_env.data)
        rc = credential_from_value("model.credential.env", config->model.credential_env.data, &credential,
                                   err);
    if (rc < 0)
        return -1;
    s.credential = credential;
    if (broker_env_new(&s, ret, err) < 0)
        return err_wrap(err, "model");
    credential = NULL; /* taken over */
    return 0;
}

int app_sandbox(const struct config *config, const char *installation, const char *boot, struct sandbox **ret,
                struct err *err)
{
    struct sandbox_config s = {.engine_socket = config->engine_socket,
                               .image = config->image,
                               .installation = installation,
                               .boot = boot,
                               .uid = geteuid(),
                               .gid = getegid(),
                               .memory_mb = config->limits.memory_mb,
                               .cpus = config->limits.cpus,
                               .pids = config->limits.pids,
                               .nofile = config->limits.nofile,
                               .tmp_mb = config->limits.tmp_mb,
                               .stderr_bytes =
                                   config->result.logs ? config->result.logs_kb * (size_t)1024 : 0};

    return sandbox_new(&s, ret, err);
}

static bool host_ready(void *host, char reason[SERVICE_REASON_SIZE])
{
    return pool_ready(((struct app *)host)->pool, reason);
}

static bool host_has_room(void *host)
{
    return pool_has_room(((struct app *)host)->pool);
}

static bool host_stop_channel(void *host, const char *channel)
{
    return pool_stop_channel(((struct app *)host)->pool, channel);
}

static bool host_cancel_turn(void *host, const char *turn_id)
{
    return pool_cancel_turn(((struct app *)host)->pool, turn_id);
}

static bool host_turn_alive(void *host, const char *turn_id)
{
    return pool_turn_alive(((struct app *)host)->pool, turn_id);
}

static bool host_blocked(void *host, const char *channel)
{
    return pool_blocked(((struct app *)host)->pool, channel);
}

static int first_job(struct store *st, void *arg, struct err *err)
{
    struct app *app = arg;
    bool first = false;
    json_t *key;
    size_t i;

    if (meta_installation(st, app->installation, err) < 0 || meta_first_start(st, &first, err) < 0)
        return -1;
    if (!first)
        return 0;
    json_array_foreach(app->config->initial_channels, i, key)
        if (channels_put(st, json_string_value(key), true, -1, clock_wall_ms(), err) < 0)
            return err_wrap(err, "initial channel");
    return 0;
}

/* Lock, database, queue, pool: everything but the doors. */
static int open_rooms(struct app *app, struct err *err)
{
    struct queue_limits limits = {app->config->queue.per_channel, app->config->queue.per_key,
                                  app->config->queue.total};

    if ((app->lock = state_lock(app->roots->state_file, err)) < 0)
        return -1;
    if (db_open(app->roots->state_file, DB_WRITE, &app->db, err) < 0)
        return -1;
    if (db_integrity(app->db, false, err) < 0) /* invalid saved state fails closed (mission.md section 3) */
        return err_wrap(err, "state %s", app->roots->state_file);
    if (db_write(app->db, first_job, app, err) < 0)
        return -1;
    id_hex(app->boot, 16);
    if (known_new(app->db, &app->keys, err) < 0 || bus_new(&app->bus, err) < 0 ||
        queue_new(&limits, &app->queue, err) < 0 || app_broker_env(app->config, &app->broker_env, err) < 0 ||
        app_sandbox(app->config, app->installation, app->boot, &app->sandbox, err) < 0)
        return -1;
    struct pool_deps deps = {.config = app->config,
                             .db = app->db,
                             .queue = app->queue,
                             .bus = app->bus,
                             .sandbox = app->sandbox,
                             .broker_env = app->broker_env,
                             .boot = app->boot,
                             .run_root = app->roots->run,
                             .workspace_root = app->roots->workspaces,
                             .state_dir = app->roots->state_dir};
    if (pool_recover(&deps, err) < 0)
        return -1;
    return pool_new(&deps, &app->pool, err);
}

/* We hold the state's lock: a socket that is there belongs to nobody. */
static int listen_admin(const char *path, int *ret, struct err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    CLEANUP(close_fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return err_errno(err, errno, "admin socket");
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    unlink(path);
    mode_t mask = umask(0177);
    int failed = bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, ADMIN_CLIENTS) < 0
                     ? errno
                     : 0;
    umask(mask);
    if (failed)
        return err_errno(err, failed, "admin socket %s", path);
    *ret = steal_fd(&fd);
    return 0;
}

static int open_doors(struct app *app, struct err *err)
{
    struct http_config api = {.routes = service_routes,
                              .authorize = service_authorize,
                              .context = &app->service,
                              .address = app->config->listen_host,
                              .port = (uint16_t)app->config->listen_port,
                              .listen_fd = -1,
                              .threads = HTTP_THREADS};
    struct http_config admin = {.routes = admin_routes,
                                .authorize = admin_authorize,
                                .context = &app->service,
                                .listen_fd = -1,
                                .threads = 1,
                                .max_connections = ADMIN_CLIENTS};

    app->service = (struct service){.db = app->db,
                                    .keys = app->keys,
                                    .queue = app->queue,
                                    .bus = app->bus,
                                    .config = app->config,
                                    .build = build_id(),
                                    .host = {app, host_ready, host_has_room, host_stop_channel,
                                             host_cancel_turn, host_turn_alive, host_blocked}};
    if (listen_admin(app->roots->admin_socket, &admin.listen_fd, err) < 0 ||
        http_server_start(&admin, &app->admin, err) < 0)
        return err_wrap(err, "admin socket");
    if (http_server_start(&api, &app->api, err) < 0)
        return err_wrap(err, "listen on %s port %u", app->config->listen_host, app->config->listen_port);
    bool v6 = strchr(app->config->listen_host, ':') != NULL;
    log_line(LOG_INFO, NULL, "listening on http://%s%s%s:%u", v6 ? "[" : "", app->config->listen_host,
             v6 ? "]" : "", http_server_port(app->api));
    return 0;
}

static int block_signals(int *fd, int *stopped, struct err *err)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    if (pthread_sigmask(SIG_BLOCK, &set, NULL) != 0)
        return err_set(err, ERR_SYSTEM, "signals cannot be blocked");
    *fd = signalfd(-1, &set, SFD_CLOEXEC);
    *stopped = eventfd(0, EFD_CLOEXEC);
    return *fd < 0 || *stopped < 0 ? err_errno(err, errno, "descriptors for signals") : 0;
}

/* Waits for the next signal. Is it one to stop? At a hang-up the pool reloads, where there is one. */
static bool stop_signal(int fd, struct pool *pool)
{
    struct signalfd_siginfo info = {0};

    if (read(fd, &info, sizeof info) < 0 && errno != EINTR)
        return true;
    if (info.ssi_signo == SIGHUP && pool) {
        log_line(LOG_INFO, NULL, "reload: asked for by SIGHUP");
        pool_reload(pool);
    }
    return info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT;
}

/* Until app->stopped, not until it is canceled: that takes a queued signal, of which a guest of the same uid
 * may have left none. */
static void *hurry_main(void *arg)
{
    struct app *app = arg;
    struct pollfd p[] = {{.fd = app->signals, .events = POLLIN}, {.fd = app->stopped, .events = POLLIN}};

    do {
        if (poll(p, ARRAY_LEN(p), -1) < 0 && errno != EINTR)
            return NULL;
        if (p[1].revents)
            return NULL;
    } while (!p[0].revents || !stop_signal(app->signals, NULL));
    app->hurry = true;
    log_line(LOG_WARN, NULL, "second signal: running turns are aborted now");
    return NULL;
}

/* Close the queue (new turns are refused, /readyz says draining), let running turns end, answer who still
 * waits. */
static void close_doors(struct app *app)
{
    pthread_t hurry;
    bool watched = app->pool && pthread_create(&hurry, NULL, hurry_main, app) == 0;

    if (app->api)
        log_line(LOG_INFO, NULL, "stopping: %d ms for running turns", app->config->drain_ms);
    if (app->queue)
        queue_close(app->queue);
    if (app->pool)
        pool_drain(app->pool, clock_mono_ms() + app->config->drain_ms, &app->hurry);
    http_server_stop(app->api, ANSWER_ALL_MS);
    http_server_stop(app->admin, ANSWER_ALL_MS);
    if (app->admin)
        unlink(app->roots->admin_socket);
    if (watched) {
        eventfd_write(app->stopped, 1);
        pthread_join(hurry, NULL);
    }
}

static int nothing(struct store *st, void *arg, struct err *err)
{
    (void)st;
    (void)arg;
    (void)err;
    return 0;
}

/* Writes that clients no longer wait for come back to the queue and the pool when they are done: all before
 * this one are. */
static void let_writes_end(struct app *app)
{
    struct err err;

    if (app->db && db_write(app->db, nothing, NULL, &err) < 0)
        log_line(LOG_WARN, NULL, "the last writes: %s", err.text);
}

static void close_rooms(struct app *app)
{
    let_writes_end(app);
    pool_free(app->pool);
    sandbox_free(app->sandbox);
    broker_env_free(app->broker_env);
    queue_free(app->queue);
    known_free(app->keys);
    db_close(app->db);
    bus_free(app->bus);
    close_fd(&app->signals);
    close_fd(&app->stopped);
    close_fd(&app->lock);
}

static void warn(const char *sentence)
{
    log_line(LOG_WARN, NULL, "%s", sentence);
}

int app_serve(const struct config *config, const struct roots *roots, struct err *err)
{
    struct app app = {.config = config, .roots = roots, .lock = -1, .signals = -1, .stopped = -1};

    if (geteuid() == 0 || getegid() == 0)
        return err_set(err, ERR_CONFIG,
                       "the service does not run as root: start it as an account of its own");
    proc_raise_nofile();
    if (proc_seal_self(err) < 0 || block_signals(&app.signals, &app.stopped, err) < 0)
        return -1;
    int rc = open_rooms(&app, err);
    if (rc == 0)
        rc = open_doors(&app, err);
    if (rc == 0) {
        notices_each(config, warn);
        while (!stop_signal(app.signals, app.pool))
            ;
    }
    close_doors(&app);
    close_rooms(&app);
    if (rc == 0)
        log_line(LOG_INFO, NULL, "stopped");
    return rc;
}
