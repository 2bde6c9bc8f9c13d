/* What of a model's answer reaches the guest: never the credential, in no form that mission.md section 6
 * names, and nothing but the rebuilt fields. Bytes from 0x80 to 0x9D in the input stand for the credential in
 * some encoding: a known answer whose encodings the fuzzer moves about. The reference here decodes, where the
 * code under test searches encoded forms. */
#include "support/fuzz.h"

#include "base/limits.h"
#include "broker/model.h"

#include <ctype.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define KEY    "sk-Fuzz/0123+abcdef~Z"
#define LAYERS 3

static struct secret credential;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct err err = {0};

    (void)argc;
    (void)argv;
    PROPERTY(secret_init(&err) == 0 && secret_set(&credential, KEY, strlen(KEY), &err) == 0, "%s", err.text);
    return 0;
}

/* --- planting ------------------------------------------------------------------------------------------- */

static void add(struct buf *out, const void *data, size_t len)
{
    struct err err;

    PROPERTY(buf_add(out, data, len, &err) == 0, "%s", err.text);
}

static void add_base64(struct buf *out, size_t shift, int variant)
{
    char plain[64] = "??", text[128];
    size_t len = strlen(KEY) + shift;

    memcpy(plain + shift, KEY "!", strlen(KEY) + 1);
    sodium_bin2base64(text, sizeof text, (unsigned char *)plain, len + 1, variant);
    add(out, text, strlen(text));
}

static void add_hex(struct buf *out, unsigned style)
{
    for (size_t i = 0; i < strlen(KEY); i++) {
        char pair[3];
        bool upper = style == 1 || (style == 2 && i % 2);
        snprintf(pair, sizeof pair, upper ? "%02X" : "%02x", (unsigned char)KEY[i]);
        add(out, pair, 2);
    }
}

/* Each `every`th character as an escape: what begins it and so many hex digits. */
static void add_escaped(struct buf *out, const char *begin, int digits, size_t every)
{
    struct err err;

    for (size_t i = 0; i < strlen(KEY); i++) {
        if (i % every != 0)
            add(out, &KEY[i], 1);
        else
            PROPERTY(buf_addf(out, &err, "%s%0*x", begin, digits, (unsigned)KEY[i]) == 0, "%s", err.text);
    }
}

static void plant(struct buf *out, uint8_t how)
{
    static const int variants[] = {sodium_base64_VARIANT_ORIGINAL, sodium_base64_VARIANT_URLSAFE_NO_PADDING};

    if (how < 6)
        add_base64(out, how % 3, variants[how / 3]);
    else if (how < 9)
        add_hex(out, how - 6u);
    else if (how < 12)
        add_escaped(out, "%", 2, how - 8u);
    else if (how < 14)
        add_escaped(out, "%25", 2, how - 11u);
    else if (how < 16)
        add_escaped(out, "\\u", 4, how - 13u); /* one layer, which the parser itself takes off */
    else if (how < 18)
        add_escaped(out, "\\\\u", 4, how - 15u);
    else if (how < 20)
        add_escaped(out, "%5cu", 4, how - 17u);
    else if (how < 22)
        add(out, KEY, strlen(KEY) - (how - 20u));
    else
        add(out, &KEY[how - 22], 8);
}

/* --- the reference -------------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef", *found = c ? strchr(digits, tolower((unsigned char)c)) : NULL;

    return found ? (int)(found - digits) : -1;
}

static bool in_hex(const char *s, size_t len)
{
    for (size_t at = 0; at + 2 * strlen(KEY) <= len; at++) {
        size_t i = 0;
        while (i < strlen(KEY) && hex_digit(s[at + 2 * i]) * 16 + hex_digit(s[at + 2 * i + 1]) == KEY[i])
            i++;
        if (i == strlen(KEY))
            return true;
    }
    return false;
}

static int base64_digit(char c, bool url)
{
    const char *digits = url ? "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
                             : "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = c ? strchr(digits, c) : NULL;

    return found ? (int)(found - digits) : -1;
}

/* Decodes from every place on, as far as there are digits. */
static bool in_base64(const char *s, size_t len, bool url)
{
    for (size_t at = 0; at < len; at++) {
        char plain[64];
        size_t n = 0;
        unsigned bits = 0, have = 0;
        for (size_t i = at; i < len && n < strlen(KEY) + 2; i++) {
            int digit = base64_digit(s[i], url);
            if (digit < 0)
                break;
            bits = (bits << 6 | (unsigned)digit) & 0xFFFF;
            have += 6;
            if (have >= 8)
                plain[n++] = (char)(bits >> (have -= 8));
        }
        if (memmem(plain, n, KEY, strlen(KEY)))
            return true;
    }
    return false;
}

static char *unescape(const char *s, size_t len, char kind, size_t *ret)
{
    char *out = malloc(len + 1);
    size_t o = 0;

    PROPERTY(out, "out of memory");
    for (size_t i = 0; i < len; i++) {
        int value = -1;
        size_t used = 1;
        if (kind == '%' && s[i] == '%' && i + 2 < len && hex_digit(s[i + 1]) >= 0 &&
            hex_digit(s[i + 2]) >= 0) {
            value = hex_digit(s[i + 1]) * 16 + hex_digit(s[i + 2]);
            used = 3;
        } else if (kind == '\\' && s[i] == '\\' && i + 5 < len && s[i + 1] == 'u') {
            value = 0;
            for (size_t d = 2; d < 6; d++)
                value = value < 0 || hex_digit(s[i + d]) < 0 ? -1 : value * 16 + hex_digit(s[i + d]);
            used = 6;
        } else if (kind == '\\' && s[i] == '\\' && i + 1 < len && strchr("\\\"/", s[i + 1])) {
            value = s[i + 1];
            used = 2;
        }
        bool plain = value <= 0 || value > 126;
        out[o++] = plain ? s[i] : (char)value;
        i += plain ? 0 : used - 1;
    }
    out[o] = '\0';
    *ret = o;
    return out;
}

static bool holds(const char *s, size_t len, int layers)
{
    if (memmem(s, len, KEY, strlen(KEY)) || in_hex(s, len) || in_base64(s, len, false) ||
        in_base64(s, len, true))
        return true;
    for (int kind = 0; layers > 0 && kind < 2; kind++) {
        size_t shorter;
        CLEANUP(free_str) char *copy = unescape(s, len, "%\\"[kind], &shorter);
        if (shorter < len && holds(copy, shorter, layers - 1))
            return true;
    }
    return false;
}

static bool value_holds(const json_t *value)
{
    const char *key;
    json_t *member;
    size_t i;

    if (json_is_string(value))
        return holds(json_string_value(value), json_string_length(value), LAYERS);
    json_array_foreach(value, i, member) {
        if (value_holds(member))
            return true;
    }
    json_object_foreach((json_t *)(uintptr_t)value, key, member) {
        if (holds(key, strlen(key), LAYERS) || value_holds(member))
            return true;
    }
    return false;
}

/* --- what comes out ------------------------------------------------------------------------------------- */

static void check_reply(const struct model_reply *reply)
{
    CLEANUP(json_free) json_t *value = NULL;
    CLEANUP(json_free) json_t *again = NULL;
    struct model_reply counts = {0};
    struct err err = {0};

    PROPERTY(json_parse(reply->text, strlen(reply->text), &value, &err) == 0, "%s", err.text);
    PROPERTY(!value_holds(value) && !strstr(reply->text, KEY), "the credential comes through: %s",
             reply->text);
    const json_t *choices = json_object_get(value, "choices"), *choice = json_array_get(choices, 0);
    const json_t *message = json_object_get(choice, "message"),
                 *calls = json_object_get(message, "tool_calls");
    PROPERTY(json_object_size(value) == (json_object_get(value, "usage") ? 3 : 2) &&
                 json_array_size(choices) == 1 && json_object_size(choice) == 3 &&
                 json_object_size(message) == (calls ? 3 : 2) && json_str(message, "content"),
             "more or less than the rebuilt fields: %s", reply->text);
    PROPERTY(model_rebuild(value, &again, &counts, &err) == 0, "its own answer is refused: %s", err.text);
    PROPERTY(json_equal(value, again), "rebuilt once more it is another: %s", reply->text);
    PROPERTY(counts.prompt_tokens == reply->prompt_tokens &&
                 counts.completion_tokens == reply->completion_tokens,
             "tokens");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT(64 << 20);
    CLEANUP(json_free) json_t *answer = NULL;
    struct model_reply reply = {0};
    struct err err = {0};

    for (size_t i = 0; i < size && text.len < 16384; i++) {
        if (data[i] >= 0x80 && data[i] < 0x80 + 30)
            plant(&text, data[i] - 0x80);
        else
            add(&text, &data[i], 1);
    }
    const char *whole = text.data ? text.data : "";
    int rc = model_read_answer(whole, text.len, &credential, &reply, &err);
    if (rc < 0) {
        fuzz_check_err(&err);
        PROPERTY(!strstr(err.text, KEY) && !reply.text, "%s", err.text);
        return 0;
    }
    PROPERTY(json_parse(whole, text.len, &answer, &err) == 0, "%s", err.text);
    PROPERTY(!value_holds(answer), "an answer with the credential is let through: %s", whole);
    check_reply(&reply);
    free(reply.text);
    return 0;
}
