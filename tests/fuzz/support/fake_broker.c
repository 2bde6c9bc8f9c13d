#include "fake_broker.h"

#include "fuzz.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>

static struct {
    char path[100];
    int fd;
    fake_answer *answer;
    pthread_mutex_t lock;
    pthread_cond_t idle;
    unsigned begun, ended; /* connections; under lock */
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .idle = PTHREAD_COND_INITIALIZER};

static const char *read_request(int fd, struct buf *request)
{
    struct err err;
    const char *end = NULL;
    size_t want = 1;

    while (!end || request->len < want) {
        PROPERTY(buf_reserve(request, 65536, &err) == 0, "a request of %zu bytes", request->len);
        ssize_t n = RETRY(recv(fd, request->data + request->len, 65536, 0));
        if (n <= 0)
            return NULL;
        request->len += (size_t)n;
        request->data[request->len] = '\0';
        if (!end && (end = strstr(request->data, "\r\n\r\n"))) {
            const char *length = strcasestr(request->data, "content-length:");
            PROPERTY(length && length < end, "a request without its length");
            want = (size_t)(end + 4 - request->data) + strtoul(length + 15, NULL, 10);
            end = request->data; /* may move: only tells that the head is there */
        }
    }
    PROPERTY(request->len == want, "more than one request on a connection");
    return strstr(request->data, "\r\n\r\n") + 4;
}

static void serve(int fd)
{
    CLEANUP(buf_free) struct buf request = BUF_INIT(4 << 20);
    CLEANUP(buf_free) struct buf answer = BUF_INIT(64 << 20);
    char path[256];

    const char *body = read_request(fd, &request);
    if (!body)
        return;
    PROPERTY(sscanf(request.data, "POST %255s HTTP/1.1\r\n", path) == 1, "the request line: %s",
             request.data);
    fake.answer(path, body, request.len - (size_t)(body - request.data), &answer);
    for (size_t at = 0; at < answer.len;) {
        ssize_t n = RETRY(send(fd, answer.data + at, answer.len - at, MSG_NOSIGNAL));
        if (n <= 0)
            return; /* refused before all was read */
        at += (size_t)n;
    }
}

static void *accept_all(void *arg)
{
    (void)arg;
    for (;;) {
        int fd = RETRY(accept4(fake.fd, NULL, NULL, SOCK_CLOEXEC));
        PROPERTY(fd >= 0, "accept");
        pthread_mutex_lock(&fake.lock);
        fake.begun++;
        pthread_mutex_unlock(&fake.lock);
        serve(fd);
        close(fd);
        pthread_mutex_lock(&fake.lock);
        fake.ended++;
        pthread_cond_broadcast(&fake.idle);
        pthread_mutex_unlock(&fake.lock);
    }
    return NULL;
}

const char *fake_broker_start(fake_answer *answer)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    pthread_t thread;

    fake.answer = answer;
    snprintf(fake.path, sizeof fake.path, "%s/broker.sock", fuzz_folder());
    memcpy(address.sun_path, fake.path, strlen(fake.path) + 1);
    fake.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    PROPERTY(fake.fd >= 0 && bind(fake.fd, (struct sockaddr *)&address, sizeof address) == 0 &&
                 listen(fake.fd, 16) == 0 && pthread_create(&thread, NULL, accept_all, NULL) == 0,
             "no broker");
    pthread_detach(thread);
    return fake.path;
}

void fake_broker_settle(void)
{
    pthread_mutex_lock(&fake.lock);
    while (fake.begun != fake.ended)
        pthread_cond_wait(&fake.idle, &fake.lock);
    pthread_mutex_unlock(&fake.lock);
}
