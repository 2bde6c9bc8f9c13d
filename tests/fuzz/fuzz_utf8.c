/* Counting, cutting, escaping and mending of texts, against jansson, which has a checker of its own. */
#include "support/fuzz.h"

#include "base/err.h"
#include "base/utf8.h"

#include <string.h>

/* jansson takes exactly what is valid. */
static bool jansson_takes(const char *s, size_t len)
{
    CLEANUP(json_free) json_t *value = json_stringn(s, len);

    return value != NULL;
}

static void check_counts(const char *s, size_t len, size_t n)
{
    size_t chars = utf8_chars(s, len), bytes = utf8_cut_bytes(s, len, n), cut = utf8_cut_chars(s, len, n);

    PROPERTY(chars <= len && bytes <= len && bytes <= n && cut <= len, "more than there is");
    PROPERTY(utf8_chars(s, cut) == (chars < n ? chars : n), "%zu of %zu characters", utf8_chars(s, cut), n);
    PROPERTY(utf8_chars(s, bytes) + utf8_chars(s + bytes, len - bytes) == chars, "a cut inside a character");
    PROPERTY(utf8_valid(s, bytes) && utf8_valid(s + bytes, len - bytes), "a cut inside a character");
    PROPERTY(utf8_valid(s, cut) && utf8_valid(s + cut, len - cut), "a cut inside a character");
    PROPERTY(n < len ? n - bytes < 4 : bytes == len, "cut %zu bytes before the bound", n - bytes);
}

static void check_sanitized(const char *s, size_t len)
{
    CLEANUP(free_str) char *safe = utf8_sanitize(s, len);
    CLEANUP(free_str) char *replaced = strndup(s, len);

    PROPERTY(safe && replaced, "out of memory");
    PROPERTY(utf8_valid(safe, strlen(safe)), "mended and not valid");
    if (utf8_valid(s, len) && !memchr(s, '\0', len))
        PROPERTY(strlen(safe) == len && memcmp(safe, s, len) == 0, "mended what was whole");
    CLEANUP(free_str) char *again = utf8_sanitize(safe, strlen(safe));
    PROPERTY(again && strcmp(safe, again) == 0, "mended twice");
    size_t size = strlen(replaced);
    utf8_replace(replaced);
    PROPERTY(strlen(replaced) == size && utf8_valid(replaced, size), "replaced and not valid");
    PROPERTY(utf8_valid(s, size) ? memcmp(replaced, s, size) == 0 : strchr(replaced, '?') != NULL,
             "replaced");
}

static void check_escaped(const char *s, size_t len)
{
    CLEANUP(free_str) char *escaped = utf8_escape_control(s, len);

    PROPERTY(escaped, "out of memory");
    PROPERTY(!utf8_has_control(escaped, strlen(escaped)), "a control character is left");
    if (!utf8_has_control(s, len))
        PROPERTY(strlen(escaped) == len && memcmp(escaped, s, len) == 0, "escaped what was plain");
    if (utf8_valid(s, len))
        PROPERTY(utf8_valid(escaped, strlen(escaped)), "escaped and not valid");
}

/* Whatever is quoted, an error can stand in JSON. */
static void check_error(const char *s, size_t len)
{
    struct err err;

    err_set(&err, ERR_ENGINE, "%.*s", (int)len, s);
    PROPERTY(utf8_valid(err.text, strlen(err.text)), "err_set");
    err_wrap(&err, "%.*s", (int)len, s);
    PROPERTY(utf8_valid(err.text, strlen(err.text)), "err_wrap");
    err_errno(&err, 2, "%.*s", (int)len, s);
    PROPERTY(utf8_valid(err.text, strlen(err.text)), "err_errno");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    size_t n = fuzz_byte(&in);
    CLEANUP(free_str) char *s = fuzz_text(in.data, in.size);
    bool valid = utf8_valid(s, in.size);

    n = n % 4 == 0 ? n * 257 : n;
    PROPERTY(valid == jansson_takes(s, in.size), "valid: %d", valid);
    if (valid)
        check_counts(s, in.size, n);
    check_sanitized(s, in.size);
    check_escaped(s, in.size);
    check_error(s, in.size);
    return 0;
}
