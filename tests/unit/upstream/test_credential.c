#include "base/clock.h"
#include "base/limits.h"
#include "tests/unit/scratch.h"
#include "upstream/credential.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#define KEY "sk-test-0123456789abcdef"

static struct err err;
static char path[] = "/tmp/cloister-credential-XXXXXX";

static void setup(void)
{
    cr_assert(secret_init(&err) == 0);
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    close(fd);
}

static void teardown(void)
{
    unlink(path);
}

TestSuite(credential, .init = setup, .fini = teardown, .timeout = 60);

/* Reads what the file holds; NULL means refused with ERR_CONFIG and no trace of the text. */
static void file_gives(const char *text, size_t len, const char *expected)
{
    struct credential_source *source = NULL;
    struct secret got = {0};

    scratch_write(path, text, len);
    cr_assert(credential_from_file(path, &source, &err) == 0);
    int rc = credential_read(source, -1, &got, &err);
    if (expected) {
        cr_assert(rc == 0, "%s", err.text);
        cr_assert_str_eq(got.data, expected);
        cr_assert(got.len == strlen(expected));
    } else {
        cr_assert(rc == -1 && err.code == ERR_CONFIG, "%s", err.text);
        cr_assert(strstr(err.text, path) && (len < 8 || !strstr(err.text, text)), "%s", err.text);
        cr_assert(got.data == NULL);
    }
    secret_free(&got);
    credential_source_free(source);
}

Test(credential, line_breaks_at_the_end_are_cut)
{
    file_gives(KEY, strlen(KEY), KEY);
    file_gives(KEY "\n", strlen(KEY) + 1, KEY);
    file_gives(KEY "\r\n", strlen(KEY) + 2, KEY);
    file_gives(KEY "\n\n", strlen(KEY) + 2, KEY);
}

Test(credential, length_is_bounded)
{
    char text[LIMIT_CREDENTIAL_MAX + 2];

    memset(text, 'k', sizeof text);
    text[LIMIT_CREDENTIAL_MIN] = '\0';
    file_gives(text, LIMIT_CREDENTIAL_MIN, text);
    text[LIMIT_CREDENTIAL_MIN - 1] = '\0';
    file_gives(text, LIMIT_CREDENTIAL_MIN - 1, NULL);
    file_gives("123456789012345\n", 16, NULL);
    file_gives("", 0, NULL);
    memset(text, 'k', sizeof text);
    text[LIMIT_CREDENTIAL_MAX] = '\0';
    file_gives(text, LIMIT_CREDENTIAL_MAX, text);
    text[LIMIT_CREDENTIAL_MAX] = 'k';
    text[LIMIT_CREDENTIAL_MAX + 1] = '\0';
    file_gives(text, LIMIT_CREDENTIAL_MAX + 1, NULL);
    char *huge = malloc(100001);
    memset(huge, 'k', 100000);
    huge[100000] = '\0';
    file_gives(huge, 100000, NULL);
    free(huge);
}

Test(credential, only_printable_ascii)
{
    static const char *const wrong[] = {"sk-test 0123456789abcdef",
                                        "sk-test\t0123456789abcdef",
                                        "sk-test\n0123456789abcdef",
                                        "sk-test\xC3\xA4"
                                        "0123456789abcdef",
                                        "sk-test\x7F"
                                        "0123456789abcdef",
                                        " sk-test0123456789abcdef"};

    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        file_gives(wrong[i], strlen(wrong[i]), NULL);
    file_gives("sk-test\0"
               "0123456789abcdef",
               24, NULL);
}

Test(credential, a_file_is_read_anew)
{
    struct credential_source *source = NULL;
    struct secret got = {0};

    scratch_write(path, KEY, strlen(KEY));
    cr_assert(credential_from_file(path, &source, &err) == 0);
    cr_assert(credential_read(source, -1, &got, &err) == 0);
    scratch_write(path, KEY "-rotated\n", strlen(KEY) + 9);
    cr_assert(credential_read(source, -1, &got, &err) == 0);
    cr_assert_str_eq(got.data, KEY "-rotated");
    unlink(path);
    cr_assert(credential_read(source, -1, &got, &err) == -1 && err.code == ERR_SYSTEM);
    secret_free(&got);
    credential_source_free(source);
    cr_assert(credential_from_file("relative", &source, &err) == -1 && err.code == ERR_CONFIG);
}

Test(credential, a_value_is_kept)
{
    struct credential_source *source = NULL;
    struct secret got = {0};
    char text[] = KEY "\n";

    cr_assert(credential_from_value("MODEL_KEY", text, &source, &err) == 0);
    memset(text, 'x', strlen(text));
    cr_assert(credential_read(source, -1, &got, &err) == 0);
    cr_assert_str_eq(got.data, KEY);
    secret_free(&got);
    credential_source_free(source);
    cr_assert(credential_from_value("MODEL_KEY", "short", &source, &err) == -1);
    cr_assert(err.code == ERR_CONFIG && strstr(err.text, "MODEL_KEY") && !strstr(err.text, "short"));
}

static int run(const char *script, int cancel_fd, struct secret *got)
{
    char sh[] = "/bin/sh", c[] = "-c", *text = strdup(script);
    char *const argv[] = {sh, c, text, NULL};
    struct credential_source *source = NULL;

    cr_assert(credential_from_command(argv, &source, &err) == 0);
    free(text);
    int rc = credential_read(source, cancel_fd, got, &err);
    credential_source_free(source);
    return rc;
}

Test(credential, a_command_prints_it)
{
    struct secret got = {0};
    char relative[] = "sh";
    char *const argv[] = {relative, NULL};
    struct credential_source *source = NULL;

    cr_assert(run("echo " KEY, -1, &got) == 0, "%s", err.text);
    cr_assert_str_eq(got.data, KEY);
    cr_assert(run("exit 3", -1, &got) == -1 && err.code == ERR_SYSTEM);
    cr_assert(run("echo short", -1, &got) == -1 && err.code == ERR_CONFIG && !strstr(err.text, "short"));
    cr_assert(run("yes", -1, &got) == -1 && err.code == ERR_CONFIG, "%s", err.text);
    cr_assert(credential_from_command(argv, &source, &err) == -1 && err.code == ERR_CONFIG);
    secret_free(&got);
}

Test(credential, a_command_can_be_canceled)
{
    struct secret got = {0};
    int fd = eventfd(1, EFD_CLOEXEC);
    int64_t start = clock_mono_ms();

    cr_assert(run("exec sleep 30", fd, &got) == -1 && err.code == ERR_CANCELED, "%s", err.text);
    cr_assert(clock_mono_ms() - start < 1000);
    close(fd);
}
