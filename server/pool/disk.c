/* Room on the disks (mission.md 3): below the floor no turn starts, and running turns whose workspace grows
 * end. */
#include "pool/internal.h"

#include "base/fs.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/secret.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <utlist.h>

#define MEASURE_ENTRIES 20000 /* looked at when a workspace is measured; a larger one counts as growing */
#define MEASURE_DEPTH   64
#define RUNNING_MAX     256 /* pool.size of schemas/config.json */

/* Bytes allocated below a folder, looking at `left` entries at most; -1 when there are more. Symlinks are not
 * followed; folders that a guest locked against us count as nothing. */
static int64_t measure(int dirfd_at, const char *name, unsigned *left, unsigned depth)
{
    int fd = openat(dirfd_at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    int64_t sum = 0;

    if (!dir) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    while (sum >= 0 && (entry = readdir(dir))) {
        struct stat st;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (*left == 0 || depth == 0) {
            sum = -1;
            break;
        }
        --*left;
        if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        int64_t below = S_ISDIR(st.st_mode) ? measure(dirfd(dir), entry->d_name, left, depth - 1) : 0;
        sum = below < 0 ? -1 : sum + below + (int64_t)st.st_blocks * 512;
    }
    closedir(dir);
    return sum;
}

static int64_t workspace_bytes(struct pool *pool, const char *channel)
{
    char name[SHA256_HEX_SIZE];
    unsigned left = MEASURE_ENTRIES;

    secret_sha256_hex(channel, strlen(channel), name);
    return measure(pool->workspace_fd, name, &left, MEASURE_DEPTH);
}

/* Below the floor: the first look remembers the size of every running turn's workspace, the next one aborts
 * those that have grown. (mission.md 3) */
static void stop_growing(struct pool *pool)
{
    struct active *a;
    char channels[RUNNING_MAX][LIMIT_CHANNEL_KEY + 1];
    int64_t sizes[ARRAY_LEN(channels)];
    unsigned count = 0;

    pthread_mutex_lock(&pool->lock);
    DL_FOREACH(pool->active, a)
        if (count < ARRAY_LEN(channels))
            snprintf(channels[count++], sizeof channels[0], "%s", a->channel);
    pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < count; i++)
        sizes[i] = workspace_bytes(pool, channels[i]);
    pthread_mutex_lock(&pool->lock);
    DL_FOREACH(pool->active, a)
        for (unsigned i = 0; i < count; i++) {
            if (strcmp(a->channel, channels[i]) != 0)
                continue;
            if (sizes[i] < 0 || (a->disk_bytes >= 0 && sizes[i] > a->disk_bytes))
                active_abort(a, END_DISK_FULL);
            a->disk_bytes = sizes[i];
        }
    pthread_mutex_unlock(&pool->lock);
}

void disk_watch(struct pool *pool)
{
    bool room = fs_has_room(pool->deps.run_root) && fs_has_room(pool->deps.workspace_root) &&
                fs_has_room(pool->deps.state_dir);

    pthread_mutex_lock(&pool->lock);
    bool changed = room != pool->has_room;
    pool->has_room = room;
    watch_update_hold(pool);
    pthread_mutex_unlock(&pool->lock);
    if (changed)
        log_line(room ? LOG_INFO : LOG_ERROR, NULL, "disk: %s",
                 room ? "has room again" : "below the floor, no new turns");
    if (!room)
        stop_growing(pool);
}
