#include "broker/slot.h"

#include "broker/answer.h"
#include "broker/guard.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define CONNECTION_MEMORY (32 * 1024)  /* of the library, for one head */
#define THREAD_STACK      (512 * 1024) /* of a call: JSON of bounded depth, TLS, name resolution */

/* One request, from its first line to the end of its answer. */
struct request {
    char *uri; /* as it was sent: what the handler is given is decoded and would let aliases in */
    bool head_seen;
    struct buf body;
};

static void request_free(struct request *req)
{
    if (!req)
        return;
    buf_free(&req->body);
    free(req->uri);
    free(req);
}

static void *on_uri(void *cls, const char *uri, struct MHD_Connection *connection)
{
    struct request *req = calloc(1, sizeof *req);

    (void)cls;
    (void)connection;
    if (!req)
        return NULL;
    req->body = BUF_INIT(LIMIT_BROKER_BODY);
    /* The library cuts its buffer into METHOD NUL TARGET NUL VERSION: a NUL of the client's own inside the
     * target would hide what comes after it. */
    req->uri = strdup(strncmp(uri + strlen(uri) + 1, "HTTP/", 5) == 0 ? uri : "");
    return req;
}

static struct watched *watched_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info ? info->socket_context : NULL;
}

/* --- answers -------------------------------------------------------------------------------------------- */

/* Takes `text` over; NULL (out of memory) drops the connection. */
static enum MHD_Result reply(struct MHD_Connection *connection, int status, char *text, bool last)
{
    if (!text)
        return MHD_NO;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(text);
        return MHD_NO;
    }
    enum MHD_Result rc = MHD_add_response_header(response, "Content-Type", "application/json");
    /* After a refused head the rest of the connection is not read: it could be anything. */
    if (rc == MHD_YES && last)
        rc = MHD_add_response_header(response, "Connection", "close");
    if (rc == MHD_YES)
        rc = MHD_queue_response(connection, (unsigned)status, response);
    MHD_destroy_response(response);
    return rc;
}

static enum MHD_Result on_head(struct broker *broker, struct MHD_Connection *connection, const char *method,
                               const struct request *req, const struct watched *watched)
{
    struct err err;

    if (call_admit(broker, watched->fd, &err) == 0 && guard_request(connection, method, req->uri, &err) == 0)
        return MHD_YES;
    return reply(connection, answer_status(err.code), answer_error(err.code, NULL), true);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data, size_t *size,
                                  void **con_cls)
{
    struct broker *broker = cls;
    struct request *req = *con_cls;
    struct watched *watched = watched_of(connection);
    struct err err;
    int status = 0;

    (void)url;
    (void)version;
    if (!req || !req->uri || !watched)
        return MHD_NO;
    if (!req->head_seen) {
        req->head_seen = true;
        watchdog_arm(broker->env->watchdog, watched);
        return on_head(broker, connection, method, req, watched);
    }
    if (*size > 0) {
        int rc = buf_add(&req->body, data, *size, &err);
        *size = 0;
        return rc < 0 ? MHD_NO : MHD_YES;
    }
    watchdog_rest(broker->env->watchdog, watched);
    char *text = call_model(broker, req->body.data ? req->body.data : "", req->body.len, &status);
    watchdog_arm(broker->env->watchdog, watched);
    return reply(connection, status, text, false);
}

static void on_completed(void *cls, struct MHD_Connection *connection, void **con_cls,
                         enum MHD_RequestTerminationCode why)
{
    struct broker *broker = cls;
    struct watched *watched = watched_of(connection);

    (void)why;
    request_free(*con_cls);
    *con_cls = NULL;
    if (watched)
        watchdog_arm(broker->env->watchdog, watched);
}

/* --- connections ---------------------------------------------------------------------------------------- */

/* The library would let the 17th connection wait in the backlog; it is closed at once instead. */
static enum MHD_Result on_accept(void *cls, const struct sockaddr *addr, socklen_t len)
{
    const struct broker *broker = cls;

    (void)addr;
    (void)len;
    return broker->connections < LIMIT_BROKER_CONNECTIONS ? MHD_YES : MHD_NO;
}

static void on_connection(void *cls, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct broker *broker = cls;

    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        struct watched *watched = calloc(1, sizeof *watched);
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        broker->connections++;
        *context = watched; /* without one every request is dropped */
        if (watched && info) {
            watched->fd = info->connect_fd;
            watchdog_arm(broker->env->watchdog, watched);
        }
        return;
    }
    broker->connections--;
    if (*context)
        watchdog_rest(broker->env->watchdog, *context);
    free(*context);
    *context = NULL;
}

/* --- the socket ----------------------------------------------------------------------------------------- */

static int make_socket(const char *path, struct err *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    CLEANUP(close_fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return err_errno(err, errno, "socket");
    memcpy(addr.sun_path, path, strlen(path));
    /* Before bind, so that the file never exists with another mode. */
    if (fchmod(fd, 0600) < 0 || bind(fd, (const struct sockaddr *)&addr, sizeof addr) < 0 ||
        listen(fd, LIMIT_BROKER_CONNECTIONS) < 0)
        return err_errno(err, errno, "listen at %s", path);
    return steal_fd(&fd);
}

int listener_start(struct broker *broker, struct err *err)
{
    int fd = make_socket(broker->path, err);

    if (fd < 0) {
        broker->path[0] = '\0';
        return -1;
    }
    broker->daemon = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC, 0,
        on_accept, broker, on_request, broker, MHD_OPTION_LISTEN_SOCKET, (MHD_socket)fd,
        MHD_OPTION_URI_LOG_CALLBACK, on_uri, NULL, MHD_OPTION_NOTIFY_COMPLETED, on_completed, broker,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, broker, MHD_OPTION_CONNECTION_LIMIT,
        2U * LIMIT_BROKER_CONNECTIONS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
        MHD_OPTION_THREAD_STACK_SIZE, (size_t)THREAD_STACK, MHD_OPTION_END);
    if (broker->daemon)
        return 0;
    /* The library may or may not have closed fd: closing another thread's descriptor would be worse than to
     * lose one. */
    return err_set(err, ERR_SYSTEM, "the listener does not start");
}

void listener_stop(struct broker *broker)
{
    if (broker->daemon)
        MHD_stop_daemon(broker->daemon);
    broker->daemon = NULL;
    if (broker->path[0])
        unlink(broker->path);
}
