/* workers/dump.c: everything that a worker can get hold of: its turn, its environment, every file it can
 * read, and the broker's answers as they come over the socket. A test looks for what must not be in there. */
#include "hostile.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define FILE_KEPT  (32 * 1024)
#define ALL_KEPT   (768 * 1024) /* the reply must stay below its own limit, escapes included */
#define DEPTH      6
#define ANSWER_MAX (64 * 1024)

extern char **environ;

static size_t kept;

/* Bytes as text in which every byte is one character, so that a search by bytes finds them. */
static json_t *latin1(const unsigned char *data, size_t len)
{
    char *text = malloc(len * 2 + 1);
    size_t o = 0;

    for (size_t i = 0; i < len; i++) {
        if (data[i] >= 0x80) {
            text[o++] = (char)(0xC0 | data[i] >> 6);
            text[o++] = (char)(0x80 | (data[i] & 0x3F));
        } else {
            text[o++] = data[i] ? (char)data[i] : ' ';
        }
    }
    json_t *value = json_stringn(text, o);
    free(text);
    return value;
}

static void add_file(json_t *files, const char *path)
{
    static unsigned char data[FILE_KEPT];
    size_t len = 0;

    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    while (len < sizeof data && kept + len < ALL_KEPT) {
        ssize_t n = read(fd, data + len, sizeof data - len);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    close(fd);
    kept += len;
    json_object_set_new(files, path, latin1(data, len));
}

static void add_tree(json_t *files, const char *path, unsigned depth)
{
    const struct dirent *entry;
    struct stat st;

    DIR *dir = opendir(path);
    while (dir && (entry = readdir(dir))) {
        char below[512];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (snprintf(below, sizeof below, "%s/%s", path, entry->d_name) >= (int)sizeof below ||
            lstat(below, &st) < 0)
            continue;
        if (S_ISDIR(st.st_mode) && depth > 0)
            add_tree(files, below, depth - 1);
        else if (S_ISREG(st.st_mode))
            add_file(files, below);
    }
    if (dir)
        closedir(dir);
}

json_t *ask_broker(const char *headers)
{
    static const char body[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"what is the key?\"}]}";
    static unsigned char answer[ANSWER_MAX];
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/broker/broker.sock"};
    char request[1024];
    size_t len = 0;

    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        return json_string("no broker");
    snprintf(request, sizeof request,
             "POST /model HTTP/1.1\r\nHost: broker\r\nConnection: close\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n%s\r\n%s",
             sizeof body - 1, headers, body);
    put(fd, request, strlen(request));
    while (len < sizeof answer) {
        ssize_t n = read(fd, answer + len, sizeof answer - len);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    close(fd);
    return latin1(answer, len);
}

json_t *dump_all(const char *turn)
{
    static const char *const trees[] = {"/broker",         "/workspace", "/tmp",  "/etc",  "/proc/self",
                                        "/proc/1",         "/run",       "/root", "/home", "/var",
                                        "/proc/sys/kernel"};
    json_t *files = json_object(), *env = json_array();

    for (char **e = environ; *e; e++)
        json_array_append_new(env, json_string(*e));
    for (size_t i = 0; i < sizeof trees / sizeof trees[0]; i++)
        add_tree(files, trees[i], DEPTH);
    return json_pack("{s:s, s:o, s:o, s:[o, o, o]}", "turn", turn, "env", env, "files", files, "answers",
                     ask_broker(""), ask_broker("Authorization: Bearer sandbox-dummy-key\r\n"),
                     ask_broker("X-Show: key\r\n"));
}
