/* faults.c: preloaded into a server, makes the Nth allocation, file operation or send fail, as the page in
 * the file FAULTS_CONTROL says. Without that file it only passes calls on. Works with any number of threads.
 */
#include "control.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* What an allocation of SQLite for a page of 4,096 bytes comes to. */
#define PAGE_LEAST 4300
#define PAGE_MOST  4500

#define PUBLIC  __attribute__((visibility("default")))
#define SOME(n) ((n) > 1 ? (n) / 2 : (n))

static struct control *control;
static __thread bool inside; /* the trace is being taken, which may call what is replaced here */

__attribute__((constructor)) static void open_control(void)
{
    const char *path = getenv("FAULTS_CONTROL");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *page = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    void *warm[1];

    if (fd >= 0)
        close(fd);
    backtrace(warm, 1); /* the first call loads a library */
    if (page == MAP_FAILED)
        return;
    control = page;
    control->live = 0;
}

static void note_trace(void *const *list, int count)
{
    for (int i = 0; i < count; i++)
        control->trace[i] = (uintptr_t)list[i];
    control->trace_length = count;
}

/* Is the place new? Then it is noted. */
static bool is_new(void *const *list, int count)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */

    for (int i = 0; i < count && i < PLACE_DEPTH; i++)
        hash = (hash ^ (uintptr_t)list[i]) * 1099511628211u;
    hash |= 1;
    for (uint64_t i = 0; i < PLACES_MAX; i++) {
        uint64_t found = 0;
        _Atomic uint64_t *place = &control->places[(hash + i) % PLACES_MAX];
        if (atomic_compare_exchange_strong(place, &found, hash))
            return true;
        if (found == hash)
            return false;
    }
    return false;
}

static bool is_due_by_place(void)
{
    void *list[TRACE_MAX];
    int64_t none = 0;

    if (!atomic_compare_exchange_strong(&control->hits, &none, 1))
        return false;
    int count = backtrace(list, TRACE_MAX);
    if (is_new(list, count)) {
        note_trace(list, count);
        return true;
    }
    control->hits = 0;
    return false;
}

/* Is it this call's turn? */
static bool is_due(void)
{
    void *list[TRACE_MAX];

    if (control->by_place)
        return is_due_by_place();
    int64_t n = --control->countdown;
    if (n >= 1 || n <= -control->length)
        return false;
    if (control->hits++ == 0)
        note_trace(list, backtrace(list, TRACE_MAX));
    return true;
}

/* Counts a call; true when it has to fail. errno is untouched. */
static bool fails(enum kind kind, bool writes)
{
    int saved = errno;

    if (!control || inside || kind == KIND_NONE)
        return false;
    control->calls[kind]++;
    if (control->kind != kind || (control->error == 0 && !writes))
        return false;
    inside = true;
    bool due = is_due();
    inside = false;
    errno = saved;
    return due;
}

/* Pages that SQLite keeps are no leak: each connection takes up to 2,000 KiB of them by and by. */
static bool is_page(void *p)
{
    size_t size = malloc_usable_size(p);

    return size > PAGE_LEAST && size < PAGE_MOST;
}

static void *counted(void *p)
{
    if (p && control && !is_page(p))
        control->live++;
    return p;
}

/* Memory. The C library's own names are used, since looking one up may allocate. */

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static void *no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

PUBLIC void *malloc(size_t size)
{
    return fails(KIND_ALLOC, true) ? no_memory() : counted(__libc_malloc(size));
}

PUBLIC void *calloc(size_t count, size_t size)
{
    return fails(KIND_ALLOC, true) ? no_memory() : counted(__libc_calloc(count, size));
}

PUBLIC void *realloc(void *old, size_t size)
{
    if (old && size == 0) {
        free(old);
        return NULL;
    }
    if (fails(KIND_ALLOC, true))
        return no_memory();
    bool page = old && is_page(old);
    void *p = __libc_realloc(old, size);
    if (p && old && control && !page)
        control->live--;
    return counted(p);
}

PUBLIC void *memalign(size_t alignment, size_t size)
{
    return fails(KIND_ALLOC, true) ? no_memory() : counted(__libc_memalign(alignment, size));
}

PUBLIC void *aligned_alloc(size_t alignment, size_t size)
{
    return memalign(alignment, size);
}

PUBLIC int posix_memalign(void **ret, size_t alignment, size_t size)
{
    void *p = memalign(alignment, size);

    if (!p)
        return ENOMEM;
    *ret = p;
    return 0;
}

PUBLIC void free(void *p)
{
    if (p && control && !is_page(p))
        control->live--;
    __libc_free(p);
}

/* Files and sockets. */

#define REAL(name) __extension__((__typeof__(name) *)real(#name))

static void *real(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static int fault(void)
{
    errno = (int)control->error;
    return -1;
}

/* What a write goes to; what is neither file nor socket (an eventfd) does not fail on a real machine either.
 */
static enum kind kind_of(int fd)
{
    int saved = errno;
    struct stat st;
    int rc = fstat(fd, &st);

    errno = saved;
    if (rc < 0)
        return KIND_NONE;
    return S_ISSOCK(st.st_mode) ? KIND_SOCKET : S_ISREG(st.st_mode) ? KIND_FILE : KIND_NONE;
}

/* The first half of a vector that has more than one byte, in `first`. */
static int half(const struct iovec *list, size_t count, struct iovec *first)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i].iov_len == 0)
            continue;
        *first = (struct iovec){list[i].iov_base, SOME(list[i].iov_len)};
        return 1;
    }
    return 0;
}

/* A function that transfers `count` bytes: fails, or transfers half of them. */
#define TRANSFER(kind, call, count)                                                                          \
    do {                                                                                                     \
        if (fails(kind, true)) {                                                                             \
            if (control->error != 0)                                                                         \
                return fault();                                                                              \
            (count) = SOME(count);                                                                           \
        }                                                                                                    \
        return call;                                                                                         \
    } while (0)

PUBLIC ssize_t write(int fd, const void *data, size_t count)
{
    TRANSFER(kind_of(fd), REAL(write)(fd, data, count), count);
}

PUBLIC ssize_t pwrite(int fd, const void *data, size_t count, off_t at)
{
    TRANSFER(kind_of(fd), REAL(pwrite)(fd, data, count, at), count);
}

PUBLIC ssize_t pwrite64(int fd, const void *data, size_t count, off64_t at)
{
    TRANSFER(kind_of(fd), REAL(pwrite64)(fd, data, count, at), count);
}

PUBLIC ssize_t send(int fd, const void *data, size_t count, int flags)
{
    TRANSFER(KIND_SOCKET, REAL(send)(fd, data, count, flags), count);
}

PUBLIC ssize_t sendto(int fd, const void *data, size_t count, int flags, __CONST_SOCKADDR_ARG to,
                      socklen_t len)
{
    TRANSFER(KIND_SOCKET, REAL(sendto)(fd, data, count, flags, to, len), count);
}

PUBLIC ssize_t sendfile(int to, int from, off_t *at, size_t count)
{
    TRANSFER(KIND_SOCKET, REAL(sendfile)(to, from, at, count), count);
}

PUBLIC ssize_t sendfile64(int to, int from, off64_t *at, size_t count)
{
    TRANSFER(KIND_SOCKET, REAL(sendfile64)(to, from, at, count), count);
}

PUBLIC ssize_t writev(int fd, const struct iovec *list, int count)
{
    struct iovec first;

    if (fails(kind_of(fd), true)) {
        if (control->error != 0)
            return fault();
        if (half(list, (size_t)count, &first))
            return REAL(writev)(fd, &first, 1);
    }
    return REAL(writev)(fd, list, count);
}

PUBLIC ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct msghdr less = *message;
    struct iovec first;

    if (fails(KIND_SOCKET, true)) {
        if (control->error != 0)
            return fault();
        if (half(message->msg_iov, message->msg_iovlen, &first)) {
            less.msg_iov = &first;
            less.msg_iovlen = 1;
        }
    }
    return REAL(sendmsg)(fd, &less, flags);
}

/* A function that changes a file or folder, and says -1 when it cannot. */
#define CHANGE(name, parameters, arguments)                                                                  \
    PUBLIC int name parameters                                                                               \
    {                                                                                                        \
        return fails(KIND_FILE, false) ? fault() : REAL(name) arguments;                                     \
    }

CHANGE(fsync, (int fd), (fd))
CHANGE(fdatasync, (int fd), (fd))
CHANGE(ftruncate, (int fd, off_t size), (fd, size))
CHANGE(ftruncate64, (int fd, off64_t size), (fd, size))
CHANGE(fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size))
CHANGE(fallocate64, (int fd, int mode, off64_t at, off64_t size), (fd, mode, at, size))
CHANGE(rename, (const char *from, const char *to), (from, to))
CHANGE(renameat, (int dir, const char *from, int to_dir, const char *to), (dir, from, to_dir, to))
CHANGE(mkdir, (const char *path, mode_t mode), (path, mode))
CHANGE(mkdirat, (int dir, const char *path, mode_t mode), (dir, path, mode))
CHANGE(rmdir, (const char *path), (path))
CHANGE(unlink, (const char *path), (path))
CHANGE(unlinkat, (int dir, const char *path, int flags), (dir, path, flags))
CHANGE(chmod, (const char *path, mode_t mode), (path, mode))
CHANGE(fchmod, (int fd, mode_t mode), (fd, mode))
CHANGE(fchmodat, (int dir, const char *path, mode_t mode, int flags), (dir, path, mode, flags))
CHANGE(bind, (int fd, __CONST_SOCKADDR_ARG address, socklen_t len), (fd, address, len))

PUBLIC int posix_fallocate(int fd, off_t at, off_t size)
{
    return fails(KIND_FILE, false) ? (int)control->error : REAL(posix_fallocate)(fd, at, size);
}

PUBLIC int posix_fallocate64(int fd, off64_t at, off64_t size)
{
    return fails(KIND_FILE, false) ? (int)control->error : REAL(posix_fallocate64)(fd, at, size);
}

/* Opening counts where it may make a file. */
#define OPEN(name, parameters, arguments)                                                                    \
    PUBLIC int name parameters                                                                               \
    {                                                                                                        \
        mode_t mode = 0;                                                                                     \
        if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) {                                         \
            va_list ap;                                                                                      \
            va_start(ap, flags);                                                                             \
            mode = va_arg(ap, mode_t);                                                                       \
            va_end(ap);                                                                                      \
        }                                                                                                    \
        if ((flags & O_CREAT) && fails(KIND_FILE, false))                                                    \
            return fault();                                                                                  \
        return REAL(name) arguments;                                                                         \
    }

OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, (int dir, const char *path, int flags, ...), (dir, path, flags, mode))
OPEN(openat64, (int dir, const char *path, int flags, ...), (dir, path, flags, mode))
