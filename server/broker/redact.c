#include "broker/redact.h"

#include <ctype.h>
#include <sodium.h>
#include <string.h>

#define ALIGNMENTS 3
#define LAYERS     3 /* of escaping that are taken off, of either kind in any order */

/* The forms that are looked for; hex is lower-case and compared with lower-cased text. */
struct needles {
    const struct secret *raw;
    char *base64[2 * ALIGNMENTS];
    char *hex;
};

static void wipe_free(char *text)
{
    if (text)
        secret_wipe(text, strlen(text));
    free(text);
}

static void needles_free(struct needles *n)
{
    for (size_t i = 0; i < ARRAY_LEN(n->base64); i++)
        wipe_free(n->base64[i]);
    wipe_free(n->hex);
}

/* What `credential` looks like inside the base64 of a longer text, when `shift` bytes of its first group of
 * three come from what stands before: only characters that its own bits decide alone. */
static char *base64_at(const struct secret *credential, size_t shift, int variant)
{
    size_t len = shift + credential->len;
    size_t size = sodium_base64_encoded_len(len, variant);
    size_t first = (shift * 8 + 5) / 6, end = len * 8 / 6;
    unsigned char *plain = calloc(1, len);
    char *text = calloc(1, size);

    if (plain && text) {
        memcpy(plain + shift, credential->data, credential->len);
        sodium_bin2base64(text, size, plain, len, variant);
        memmove(text, text + first, end - first);
        secret_wipe(text + (end - first), size - (end - first));
    }
    if (plain)
        secret_wipe(plain, len);
    free(plain);
    return text;
}

static int needles_make(const struct secret *credential, struct needles *n, struct err *err)
{
    static const int variants[] = {sodium_base64_VARIANT_ORIGINAL_NO_PADDING,
                                   sodium_base64_VARIANT_URLSAFE_NO_PADDING};

    n->raw = credential;
    for (size_t i = 0; i < ARRAY_LEN(n->base64); i++) {
        n->base64[i] = base64_at(credential, i % ALIGNMENTS, variants[i / ALIGNMENTS]);
        if (!n->base64[i])
            return err_no_memory(err);
    }
    n->hex = malloc(credential->len * 2 + 1);
    if (!n->hex)
        return err_no_memory(err);
    sodium_bin2hex(n->hex, credential->len * 2 + 1, (const unsigned char *)credential->data, credential->len);
    return 0;
}

static bool contains(const char *text, size_t len, const struct needles *n)
{
    if (memmem(text, len, n->raw->data, n->raw->len))
        return true;
    for (size_t i = 0; i < ARRAY_LEN(n->base64); i++)
        if (memmem(text, len, n->base64[i], strlen(n->base64[i])))
            return true;
    return false;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : isxdigit((unsigned char)c) ? (c | 0x20) - 'a' + 10 : -1;
}

/* The value of `n` hex digits at s, which ends with a NUL; -1 when they are not there. */
static int hex_value(const char *s, size_t n)
{
    int value = 0;

    for (size_t i = 0; i < n; i++) {
        int digit = hex_digit(s[i]);
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

enum escape { ESCAPE_URL, ESCAPE_JSON };

/* The ASCII character that an escape at s stands for and the escape's length, or -1. */
static int escaped_char(const char *s, enum escape kind, size_t *used)
{
    if (kind == ESCAPE_URL && s[0] == '%') {
        *used = 3;
        return hex_value(s + 1, 2);
    }
    if (kind == ESCAPE_JSON && s[0] == '\\' && s[1] == 'u') {
        *used = 6;
        return hex_value(s + 2, 4);
    }
    if (kind == ESCAPE_JSON && s[0] == '\\' && s[1] && strchr("\\\"/", s[1])) {
        *used = 2;
        return s[1];
    }
    return -1;
}

/* Copies text with one layer of escapes taken off; the new length, which is `len` when there was none. */
static size_t unescape(const char *text, size_t len, enum escape kind, char *out)
{
    size_t o = 0;

    for (size_t i = 0; i < len; o++) {
        size_t used = 1;
        int c = escaped_char(text + i, kind, &used);
        bool escaped = c > 0 && c < 0x80;
        out[o] = escaped ? (char)c : text[i];
        i += escaped ? used : 1;
    }
    out[o] = '\0';
    return o;
}

/* Looks at text, then at what is behind either kind of escape. */
static int check_text(const char *text, size_t len, const struct needles *n, int layers, struct err *err)
{
    if (len < n->raw->len) /* no form is shorter than the credential itself */
        return 0;
    if (contains(text, len, n))
        return err_set(err, ERR_UPSTREAM, "the answer contains the credential");
    CLEANUP(free_str) char *copy = malloc(len + 1);
    if (!copy)
        return err_no_memory(err);
    for (size_t i = 0; i <= len; i++)
        copy[i] = (char)tolower((unsigned char)text[i]);
    if (memmem(copy, len, n->hex, n->raw->len * 2))
        return err_set(err, ERR_UPSTREAM, "the answer contains the credential in hex");
    for (enum escape kind = ESCAPE_URL; layers > 0 && kind <= ESCAPE_JSON; kind++) {
        size_t shorter = unescape(text, len, kind, copy);
        if (shorter < len && check_text(copy, shorter, n, layers - 1, err) < 0)
            return -1;
    }
    return 0;
}

static int check_value(json_t *value, const struct needles *n, struct err *err)
{
    const char *key;
    json_t *member;
    size_t i;

    if (json_is_string(value))
        return check_text(json_string_value(value), json_string_length(value), n, LAYERS, err);
    json_array_foreach(value, i, member) {
        if (check_value(member, n, err) < 0)
            return -1;
    }
    json_object_foreach(value, key, member) {
        if (check_text(key, strlen(key), n, LAYERS, err) < 0 || check_value(member, n, err) < 0)
            return -1;
    }
    return 0;
}

int redact_check(const json_t *answer, const struct secret *credential, struct err *err)
{
    CLEANUP(needles_free) struct needles needles = {0};

    if (needles_make(credential, &needles, err) < 0)
        return -1;
    /* jansson's iterators take a plain pointer, although they only read. */
    return check_value((json_t *)(uintptr_t)answer, &needles, err);
}
