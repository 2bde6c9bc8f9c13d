/* What the pool does without an engine: turns that do not start, workspaces, disks. */
#include "rig.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/secret.h"
#include "storage/channels.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/resource.h>

/* Takes the next turn as a thread of the pool does. */
static void run_next(struct rig *r)
{
    struct queue_item item;

    cr_assert_eq(queue_pop(r->queue, 0, &item), 0);
    turn_run(&r->pool, &item);
    free(item.channel);
}

static void assert_free(struct rig *r, const char *channel)
{
    struct queue_channel_info info;

    queue_channel(r->queue, channel, &info);
    cr_assert_not(info.busy, "the channel is free again");
    cr_assert_null(r->pool.active);
    cr_assert_null(r->pool.graveyard);
}

Test(turn, of_a_channel_turned_off_meanwhile_is_canceled_and_never_runs)
{
    struct rig *r = make_rig();

    push_turn(r, "turn_1", "web:a");
    write_db(r, put_job, (struct call){.channel = "web:a", .enabled = false});
    run_next(r);
    assert_status(r, "turn_1", TURN_CANCELED, "channel_disabled");
    assert_free(r, "web:a");
    free_rig(r);
}

Test(turn, taken_while_the_service_stops_stays_queued)
{
    struct rig *r = make_rig();

    push_turn(r, "turn_1", "web:a");
    r->pool.stopping = true;
    run_next(r);
    assert_status(r, "turn_1", TURN_QUEUED, "");
    assert_free(r, "web:a");
    free_rig(r);
}

Test(turn, that_ended_already_is_left_alone)
{
    struct rig *r = make_rig();

    push_turn(r, "turn_1", "web:a");
    write_db(r, start_job, (struct call){.id = "turn_1"});
    run_next(r);
    assert_status(r, "turn_1", TURN_RUNNING, "");
    assert_free(r, "web:a");
    free_rig(r);
}

static char *workspace_path(struct rig *r, const char *channel)
{
    char name[SHA256_HEX_SIZE];

    secret_sha256_hex(channel, strlen(channel), name);
    return scratch_path(r->workspaces, name);
}

Test(workspace, is_made_private_and_given_its_rights_back)
{
    struct rig *r = make_rig();
    char *want = workspace_path(r, "web:a"), *got = NULL;
    struct err err;
    struct stat st;

    for (int round = 0; round < 2; round++) {
        cr_assert_eq(slot_workspace(&r->pool, "web:a", &got, &err), 0, "%s", err.text);
        cr_assert_str_eq(got, want);
        cr_assert_eq(stat(want, &st), 0);
        cr_assert_eq(st.st_mode & 07777, 0700);
        free(STEAL(got));
        cr_assert_eq(chmod(want, 0), 0);
    }
    free(want);
    free_rig(r);
}

Test(workspace, of_another_kind_or_owner_is_a_violation)
{
    struct rig *r = make_rig();
    char *path = workspace_path(r, "web:a"), *got = NULL;
    struct err err;

    cr_assert_eq(symlink(r->run, path), 0);
    cr_assert_eq(slot_workspace(&r->pool, "web:a", &got, &err), -1);
    cr_assert_eq(err.code, ERR_CONFLICT, "%s", err.text);
    cr_assert_eq(unlink(path), 0);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0700));
    cr_assert_eq(slot_workspace(&r->pool, "web:a", &got, &err), -1);
    cr_assert_eq(err.code, ERR_CONFLICT);
    cr_assert_eq(unlink(path), 0);
    if (getuid() == 0) {
        cr_assert_eq(mkdir(path, 0700), 0);
        cr_assert_eq(chown(path, GUEST_UID, GUEST_UID), 0);
        cr_assert_eq(slot_workspace(&r->pool, "web:a", &got, &err), -1);
        cr_assert_eq(err.code, ERR_CONFLICT);
    }
    cr_assert_null(got);
    free(path);
    free_rig(r);
}

/* The start is committed, but no further descriptor can be had: nothing may leave it running for ever. */
Test(turn, whose_workspace_is_a_violation_ends_so_even_without_descriptors)
{
    static const struct config config = {.limits = {.timeout_ms = 60000}};
    struct rlimit few;

    for (int round = 0; round < 2; round++) {
        struct rig *r = make_rig();
        CLEANUP(free_str) char *path = workspace_path(r, "web:a");
        r->pool.deps.config = &config;
        cr_assert_eq(symlink(r->run, path), 0);
        push_turn(r, "turn_1", "web:a");
        cr_assert_eq(getrlimit(RLIMIT_NOFILE, &few), 0);
        rlim_t before = few.rlim_cur;
        int next = dup(0);
        close(next);
        if (round == 1) { /* one is left, for the eventfd of the turn */
            few.rlim_cur = (rlim_t)next + 1;
            cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
        }
        run_next(r);
        few.rlim_cur = before;
        cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
        assert_status(r, "turn_1", TURN_FAILED, "workspace_violation");
        assert_free(r, "web:a");
        free_rig(r);
    }
}

/* A disk without a free inode, in a mount namespace of the test's own: only root can make one. */
Test(turn, without_room_for_its_folders_ends_as_disk_full)
{
    static const struct config config = {.limits = {.timeout_ms = 60000}};

    if (getuid() != 0)
        return;
    cr_assert_eq(unshare(CLONE_NEWNS), 0);
    cr_assert_eq(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    for (int round = 0; round < 2; round++) {
        struct rig *r = make_rig();
        int *root = round == 0 ? &r->pool.workspace_fd : &r->pool.run_fd;
        const char *path = round == 0 ? r->workspaces : r->run;
        r->pool.deps.config = &config;
        cr_assert_eq(mount("none", path, "tmpfs", 0, "nr_inodes=1,mode=0700"), 0);
        close(*root);
        *root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        push_turn(r, "turn_1", "web:a");
        run_next(r);
        assert_status(r, "turn_1", TURN_FAILED, "disk_full");
        assert_free(r, "web:a");
        cr_assert_not(fs_has_room(path));
        cr_assert_eq(umount2(path, MNT_DETACH), 0);
        free_rig(r);
    }
}

static struct active *make_active(struct rig *r, const char *channel)
{
    struct active *a = calloc(1, sizeof *a);

    *a = (struct active){
        .channel = channel, .disk_bytes = -1, .abort_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    cr_assert(active_add(&r->pool, a));
    return a;
}

static void grow(struct rig *r, const char *channel, size_t bytes)
{
    CLEANUP(free_str) char *dir = workspace_path(r, channel);
    CLEANUP(free_str) char *path = scratch_path(dir, "data");
    int fd = open(path, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    static char block[65536];

    cr_assert_geq(fd, 0);
    for (size_t done = 0; done < bytes; done += sizeof block)
        cr_assert_eq(write(fd, block, sizeof block), sizeof block);
    cr_assert_eq(fsync(fd), 0);
    close(fd);
}

Test(disk, below_the_floor_only_growing_turns_end)
{
    struct rig *r = make_rig();
    struct err err;
    static const char *const channels[] = {"web:grows", "web:rests"};
    struct active *a[2];
    eventfd_t value;

    for (int i = 0; i < 2; i++) {
        char *path = NULL;
        cr_assert_eq(slot_workspace(&r->pool, channels[i], &path, &err), 0, "%s", err.text);
        free(path);
        grow(r, channels[i], 1 << 18);
        a[i] = make_active(r, channels[i]);
    }
    r->pool.deps.run_root = "/nonexistent/x"; /* a disk that cannot be asked has no room */
    disk_watch(&r->pool);
    cr_assert_not(pool_has_room(&r->pool));
    cr_assert(a[0]->why == END_NONE && a[1]->why == END_NONE, "the first look only remembers");
    grow(r, channels[0], 1 << 18);
    disk_watch(&r->pool);
    cr_assert_eq(a[0]->why, END_DISK_FULL);
    cr_assert_eq(eventfd_read(a[0]->abort_fd, &value), 0);
    cr_assert_eq(a[1]->why, END_NONE);
    cr_assert_eq(eventfd_read(a[1]->abort_fd, &value), -1);
    cr_assert_eq(active_settle(&r->pool, a[0]), END_DISK_FULL);
    active_remove(&r->pool, a[0]);
    cr_assert_eq(active_settle(&r->pool, a[1]), END_NONE);
    active_remove(&r->pool, a[1]);
    for (int i = 0; i < 2; i++) {
        close(a[i]->abort_fd);
        free(a[i]);
    }
    free_rig(r);
}

Test(abort, the_first_reason_stays)
{
    struct rig *r = make_rig();
    struct active *a = make_active(r, "web:a");

    cr_assert_not(pool_stop_channel(&r->pool, "web:b"));
    cr_assert(pool_stop_channel(&r->pool, "web:a"));
    pthread_mutex_lock(&r->pool.lock);
    active_abort(a, END_SERVER_RESTARTED);
    pthread_mutex_unlock(&r->pool.lock);
    cr_assert_eq(active_settle(&r->pool, a), END_CANCELED);
    active_remove(&r->pool, a);
    cr_assert_not(pool_stop_channel(&r->pool, "web:a"));
    close(a->abort_fd);
    free(a);
    a = make_active(r, "web:a");
    cr_assert_eq(active_settle(&r->pool, a), END_NONE);
    cr_assert_not(pool_stop_channel(&r->pool, "web:a"), "its end is decided");
    active_remove(&r->pool, a);
    close(a->abort_fd);
    free(a);
    free_rig(r);
}

Test(ready, says_why_not)
{
    struct rig *r = make_rig();
    char reason[POOL_REASON_SIZE] = "";

    watch_set_engine(&r->pool, false, "image_missing: x");
    cr_assert_not(pool_ready(&r->pool, reason));
    cr_assert_str_eq(reason, "image_missing: x");
    watch_set_engine(&r->pool, true, "");
    cr_assert(pool_ready(&r->pool, reason));
    r->pool.has_room = false;
    cr_assert_not(pool_ready(&r->pool, reason));
    cr_assert_eq(strncmp(reason, "disk_full: ", 11), 0);
    r->pool.stopping = true;
    cr_assert_not(pool_ready(&r->pool, reason));
    cr_assert_eq(strncmp(reason, "draining: ", 10), 0);
    free_rig(r);
}
