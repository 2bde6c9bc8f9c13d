#include "broker/redact.h"

#include <ctype.h>
#include <sodium.h>
#include <string.h>

#define ALIGNMENTS 3
#define LAYERS     4 /* of escaping that are taken off */

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

/* Takes one layer of %XX, \uXXXX (of ASCII), \/, \" and \\ off, in place. The new length. */
static size_t unescape(char *text, size_t len)
{
    size_t o = 0;

    for (size_t i = 0; i < len; o++) {
        int code = -1;
        size_t used = 1;
        if (text[i] == '%') {
            code = hex_value(text + i + 1, 2);
            used = 3;
        } else if (text[i] == '\\' && text[i + 1] == 'u') {
            code = hex_value(text + i + 2, 4);
            used = 6;
        } else if (text[i] == '\\' && text[i + 1] && strchr("\\\"/", text[i + 1])) {
            code = text[i + 1];
            used = 2;
        }
        bool escaped = code > 0 && code < 0x80;
        text[o] = escaped ? (char)code : text[i];
        i += escaped ? used : 1;
    }
    text[o] = '\0';
    return o;
}

static int found(struct err *err)
{
    return err_set(err, ERR_UPSTREAM, "the answer contains the credential");
}

static int check_text(const char *given, size_t len, const struct needles *n, struct err *err)
{
    if (len < n->raw->len) /* no form is shorter than the credential itself */
        return 0;
    CLEANUP(free_str)
    char *text = malloc(len + 1);
    CLEANUP(free_str)
    char *lower = malloc(len + 1);
    if (!text || !lower)
        return err_no_memory(err);
    memcpy(text, given, len + 1);
    for (int layer = 0; layer <= LAYERS; layer++) {
        if (contains(text, len, n))
            return found(err);
        for (size_t i = 0; i <= len; i++)
            lower[i] = (char)tolower((unsigned char)text[i]);
        if (memmem(lower, len, n->hex, n->raw->len * 2))
            return found(err);
        size_t shorter = unescape(text, len);
        if (shorter == len)
            break;
        len = shorter;
    }
    return 0;
}

static int check_value(json_t *value, const struct needles *n, struct err *err)
{
    const char *key;
    json_t *member;
    size_t i;

    if (json_is_string(value))
        return check_text(json_string_value(value), json_string_length(value), n, err);
    json_array_foreach(value, i, member)
    {
        if (check_value(member, n, err) < 0)
            return -1;
    }
    json_object_foreach(value, key, member)
    {
        if (check_text(key, strlen(key), n, err) < 0 || check_value(member, n, err) < 0)
            return -1;
    }
    return 0;
}

int redact_check(const json_t *answer, const struct secret *credential, struct err *err)
{
    CLEANUP(needles_free)
    struct needles needles = {0};

    if (needles_make(credential, &needles, err) < 0)
        return -1;
    /* jansson's iterators take a plain pointer, although they only read. */
    return check_value((json_t *)(uintptr_t)answer, &needles, err);
}
