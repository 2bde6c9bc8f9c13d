/* What the worker keeps in the workspace, and what it finds there when somebody else was there before. */
#include "base/limits.h"
#include "deploy/worker/history.h"
#include "deploy/worker/memory.h"
#include "deploy/worker/state.h"
#include "deploy/worker/text.h"
#include "rig.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

struct place {
    struct rig rig;
    int fd;
};

static void open_place(struct place *p)
{
    static const struct rig_step none = {.body = ""};
    struct err err;
    rig_start(&p->rig, &none, 1);
    p->fd = state_open(p->rig.work, &err);
    cr_assert_geq(p->fd, 0, "%s", err.text);
}

static void close_place(struct place *p)
{
    close(p->fd);
    rig_done(&p->rig);
}

static const char *path_of(const struct place *p, const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", p->rig.work, name);
    return path;
}

static void expect_content(const struct place *p, const char *want)
{
    struct buf b = BUF_INIT(1000);
    struct err err;
    cr_assert_eq(state_read(p->fd, "f", &b, &err), 0, "%s", err.text);
    cr_assert_str_eq(b.data, want);
    buf_free(&b);
}

Test(state, a_symlink_is_neither_read_nor_written_through)
{
    struct place p;
    struct err err;
    struct buf b = BUF_INIT(1000);
    open_place(&p);
    rig_put(&p.rig, "outside", "precious");
    cr_assert_eq(symlinkat("../outside", p.fd, "f"), 0);
    cr_assert_eq(symlinkat("../outside", p.fd, "f.tmp"), 0);
    cr_assert_eq(state_read(p.fd, "f", &b, &err), -1);
    cr_assert_eq(err.code, ERR_SYSTEM);
    cr_assert_eq(state_write(p.fd, "f", "new", 3, &err), 0, "%s", err.text);
    expect_content(&p, "new");
    char *outside = rig_file(&p.rig, "outside");
    cr_assert_str_eq(outside, "precious");
    free(outside);
    close_place(&p);
}

Test(state, folders_and_pipes_in_the_way_are_removed)
{
    struct place p;
    struct err err;
    struct buf b = BUF_INIT(1000);
    open_place(&p);
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "f.tmp" : "f";
        cr_assert_eq(mkdirat(p.fd, name, 0700), 0);
        cr_assert_eq(mkdirat(p.fd, i ? "f.tmp/deep" : "f/deep", 0), 0);
        cr_assert_eq(state_read(p.fd, "f", &b, &err), i ? 0 : -1);
        cr_assert_eq(state_write(p.fd, "f", "new", 3, &err), 0, "%s", err.text);
        expect_content(&p, "new");
    }
    buf_free(&b);
    cr_assert_eq(unlinkat(p.fd, "f", 0), 0);
    cr_assert_eq(mkfifoat(p.fd, "f", 0600), 0);
    cr_assert_eq(state_read(p.fd, "f", &b, &err), -1, "a pipe does not block");
    cr_assert_eq(state_write(p.fd, "f", "new", 3, &err), 0);
    expect_content(&p, "new");
    close_place(&p);
}

Test(state, its_folder_is_never_a_symlink)
{
    struct place p;
    struct err err;
    open_place(&p);
    close(p.fd);
    cr_assert_eq(mkdir(path_of(&p, "elsewhere"), 0700), 0);
    cr_assert_eq(rmdir(path_of(&p, ".cloister")), 0);
    cr_assert_eq(symlink("elsewhere", path_of(&p, ".cloister")), 0);
    p.fd = state_open(p.rig.work, &err);
    cr_assert_geq(p.fd, 0, "%s", err.text);
    cr_assert_eq(state_write(p.fd, "f", "new", 3, &err), 0);
    struct stat st;
    cr_assert_eq(lstat(path_of(&p, ".cloister"), &st), 0);
    cr_assert(S_ISDIR(st.st_mode));
    cr_assert_eq(lstat(path_of(&p, "elsewhere/f"), &st), -1);
    close_place(&p);
}

Test(state, a_write_leaves_only_its_file_with_mode_0600)
{
    struct place p;
    struct err err;
    struct stat st;
    open_place(&p);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(state_write(p.fd, "f", "x", 1, &err), 0);
    cr_assert_eq(fstatat(p.fd, "f", &st, 0), 0);
    cr_assert_eq(st.st_mode & 07777, 0600);
    DIR *dir = opendir(path_of(&p, ".cloister"));
    int entries = 0;
    while (readdir(dir))
        entries++;
    closedir(dir);
    cr_assert_eq(entries, 3);
    close_place(&p);
}

static struct memory load(struct place *p, const char *speaker, int want)
{
    struct memory m;
    struct err err;
    cr_assert_eq(memory_load(p->fd, speaker, &m, &err), want, "%s", err.text);
    return m;
}

Test(memory, speakers_see_their_own_scope_and_the_channels)
{
    struct place p;
    struct err err;
    open_place(&p);
    struct memory ann = load(&p, "../ann", 0);
    cr_assert_eq(memory_set(&ann, MEMORY_SPEAKER, "k", "hers", &err), 0);
    cr_assert_eq(memory_set(&ann, MEMORY_CHANNEL, "k", "all", &err), 0);
    struct memory bob = load(&p, "bob", 0);
    cr_assert_null(memory_get(&bob, MEMORY_SPEAKER, "k"));
    cr_assert_str_eq(memory_get(&bob, MEMORY_CHANNEL, "k"), "all");
    cr_assert_eq(memory_remove(&bob, MEMORY_SPEAKER, "k", &err), 0);
    cr_assert_eq(memory_remove(&bob, MEMORY_CHANNEL, "k", &err), 0);
    memory_free(&ann);
    ann = load(&p, "../ann", 0);
    cr_assert_str_eq(memory_get(&ann, MEMORY_SPEAKER, "k"), "hers");
    cr_assert_null(memory_get(&ann, MEMORY_CHANNEL, "k"));
    cr_assert_eq(memory_remove(&ann, MEMORY_SPEAKER, "k", &err), 0);
    char *file = rig_file(&p.rig, ".cloister/memory.json");
    cr_assert_str_eq(file, "{\"version\":1,\"channel\":{},\"speakers\":{}}");
    free(file);
    memory_free(&ann);
    memory_free(&bob);
    close_place(&p);
}

Test(memory, keys_and_values_are_bounded_in_characters)
{
    struct place p;
    struct err err;
    char *text = malloc(3 * 2049 + 1);
    for (size_t i = 0; i < 2049; i++)
        memcpy(text + 3 * i, "\xE2\x82\xAC", 3);
    text[3 * 2049] = '\0';
    open_place(&p);
    struct memory m = load(&p, "a", 0);
    cr_assert_eq(memory_set(&m, MEMORY_CHANNEL, "k", text, &err), -1);
    cr_assert_eq(err.code, ERR_INVALID);
    cr_assert_eq(memory_set(&m, MEMORY_CHANNEL, "k", text + 3, &err), 0);
    cr_assert_eq(memory_set(&m, MEMORY_CHANNEL, text + 3 * (2049 - 129), "v", &err), -1);
    cr_assert_eq(memory_set(&m, MEMORY_CHANNEL, text + 3 * (2049 - 128), "v", &err), 0);
    cr_assert_eq(memory_set(&m, MEMORY_CHANNEL, "", "v", &err), -1);
    cr_assert_eq(memory_set(&m, MEMORY_CHANNEL, "a\x1b", "v", &err), -1);
    cr_assert_eq(json_object_size(memory_entries(&m, MEMORY_CHANNEL)), 2);
    memory_free(&m);
    m = load(&p, "a", 0);
    cr_assert_str_eq(memory_get(&m, MEMORY_CHANNEL, "k"), text + 3);
    memory_free(&m);
    free(text);
    close_place(&p);
}

Test(memory, a_scope_holds_256_entries_and_the_file_512_kib)
{
    struct place p;
    struct err err;
    char key[16], value[2049];
    open_place(&p);
    struct memory m = load(&p, "a", 0);
    for (int i = 0; i < LIMIT_MEMORY_ENTRIES; i++) {
        snprintf(key, sizeof key, "k%d", i);
        cr_assert_eq(memory_set(&m, MEMORY_CHANNEL, key, "v", &err), 0);
    }
    cr_assert_eq(memory_set(&m, MEMORY_CHANNEL, "more", "v", &err), -1);
    cr_assert_eq(err.code, ERR_INVALID);
    cr_assert_eq(memory_set(&m, MEMORY_CHANNEL, "k7", "changed", &err), 0,
                 "an entry that is there can change");
    memset(value, 'x', 2048);
    value[2048] = '\0';
    int rc = 0, i;
    for (i = 0; i < LIMIT_MEMORY_ENTRIES && rc == 0; i++) {
        snprintf(key, sizeof key, "k%d", i);
        rc = memory_set(&m, MEMORY_SPEAKER, key, value, &err);
    }
    cr_assert_eq(rc, -1);
    cr_assert_eq(err.code, ERR_INVALID);
    cr_assert_null(memory_get(&m, MEMORY_SPEAKER, key), "what did not fit is not there");
    char *file = rig_file(&p.rig, ".cloister/memory.json");
    cr_assert_leq(strlen(file), LIMIT_MEMORY_BYTES);
    cr_assert_gt(strlen(file), LIMIT_MEMORY_BYTES - 2200);
    free(file);
    memory_free(&m);
    m = load(&p, "a", 0);
    cr_assert_eq(json_object_size(memory_entries(&m, MEMORY_SPEAKER)), (size_t)i - 1);
    memory_free(&m);
    close_place(&p);
}

Test(memory, a_file_that_is_too_large_or_no_file_starts_afresh)
{
    struct place p;
    char *big = malloc(LIMIT_MEMORY_BYTES + 2);
    memset(big, ' ', LIMIT_MEMORY_BYTES + 1);
    big[LIMIT_MEMORY_BYTES + 1] = '\0';
    open_place(&p);
    rig_put(&p.rig, ".cloister/memory.json", big);
    struct memory m = load(&p, "a", 1);
    memory_free(&m);
    cr_assert_eq(unlinkat(p.fd, "memory.json", 0), 0);
    cr_assert_eq(mkdirat(p.fd, "memory.json", 0700), 0);
    struct err err;
    m = load(&p, "a", 1);
    cr_assert_eq(memory_set(&m, MEMORY_CHANNEL, "k", "v", &err), 0, "%s", err.text);
    memory_free(&m);
    m = load(&p, "a", 0);
    cr_assert_str_eq(memory_get(&m, MEMORY_CHANNEL, "k"), "v");
    memory_free(&m);
    free(big);
    close_place(&p);
}

Test(memory, a_preview_takes_4_kib_and_says_what_is_missing)
{
    struct place p;
    struct err err;
    char key[32], value[1001];
    struct buf out = BUF_INIT(65536);
    open_place(&p);
    struct memory m = load(&p, "a", 0);
    cr_assert_eq(memory_preview(&m, MEMORY_SPEAKER, &out, &err), 0);
    cr_assert_str_eq(out.data, "{}");
    buf_free(&out);
    memset(value, 'x', 1000);
    value[1000] = '\0';
    for (int i = 0; i < 20; i++) {
        snprintf(key, sizeof key, "\"k%d", i);
        cr_assert_eq(memory_set(&m, MEMORY_CHANNEL, key, value, &err), 0);
    }
    cr_assert_eq(memory_preview(&m, MEMORY_CHANNEL, &out, &err), 0);
    cr_assert_leq(out.len, LIMIT_WORKER_PREVIEW);
    cr_assert(strstr(out.data, "{\"\\\"k0\":\"xxx"));
    cr_assert(strstr(out.data, TEXT_CUT_MARK "\",\""));
    cr_assert(strstr(out.data, "} and 13 more, see memory_get"), "%s", strrchr(out.data, '}'));
    buf_free(&out);
    memory_free(&m);
    close_place(&p);
}

Test(history, keeps_ten_exchanges_of_8_kib)
{
    struct place p;
    struct err err;
    json_t *history, *back;
    char *big = malloc(20001), user[16];
    memset(big, '"', 20000);
    big[20000] = '\0';
    open_place(&p);
    cr_assert_eq(history_load(p.fd, &history, &err), 0);
    for (int i = 0; i < 13; i++) {
        snprintf(user, sizeof user, "u%d", i);
        cr_assert_eq(history_add(history, "id", "name", i == 12 ? big : user, big, &err), 0);
    }
    cr_assert_eq(json_array_size(history), LIMIT_WORKER_EXCHANGES);
    cr_assert_str_eq(json_str(json_array_get(history, 0), "user"), "u3");
    for (size_t i = 0; i < 10; i++) {
        const char *u = json_str(json_array_get(history, i), "user");
        const char *a = json_str(json_array_get(history, i), "assistant");
        size_t size = text_encoded(u, strlen(u)) + text_encoded(a, strlen(a));
        cr_assert_leq(size, LIMIT_WORKER_EXCHANGE);
        cr_assert_gt(size, LIMIT_WORKER_EXCHANGE - 4, "a short text leaves its room to the other");
    }
    cr_assert_eq(history_save(p.fd, history, &err), 0);
    cr_assert_eq(history_load(p.fd, &back, &err), 0, "%s", err.text);
    cr_assert(json_equal(history, back));
    json_decref(back);
    cr_assert_eq(history_clear(p.fd, &err), 0);
    cr_assert_eq(history_clear(p.fd, &err), 0);
    cr_assert_eq(history_load(p.fd, &back, &err), 0);
    cr_assert_eq(json_array_size(back), 0);
    json_decref(back);
    json_decref(history);
    free(big);
    close_place(&p);
}

Test(history, an_exchange_beyond_its_size_is_not_believed)
{
    struct place p;
    struct err err;
    json_t *history;
    char *text = malloc(10000);
    int n =
        snprintf(text, 10000,
                 "[{\"speaker\":{\"id\":\"a\",\"name\":\"b\"},\"user\":\"%08200d\",\"assistant\":\"\"}]", 1);
    cr_assert_lt(n, 10000);
    open_place(&p);
    rig_put(&p.rig, ".cloister/history.json", text);
    cr_assert_eq(history_load(p.fd, &history, &err), 1);
    cr_assert_eq(json_array_size(history), 0);
    json_decref(history);
    free(text);
    close_place(&p);
}
