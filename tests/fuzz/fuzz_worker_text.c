/* The worker's cuts: what is left is valid, at most as long as it may be, ends with the mark, and its size
 * inside JSON is what jansson writes. */
#include "support/fuzz.h"

#include "base/utf8.h"
#include "deploy/worker/text.h"

#include <string.h>

static size_t written_size(const char *s)
{
    CLEANUP(json_free) json_t *value = json_string(s);
    CLEANUP(free_str) char *text = NULL;
    struct err err = {0};

    PROPERTY(json_text(value, &text, &err) == 0, "%s", err.text);
    return strlen(text) - 2;
}

static void check_cut(const char *s, const char *cut, bool whole)
{
    size_t mark = strlen(TEXT_CUT_MARK), len = strlen(cut);

    PROPERTY(utf8_valid(cut, len), "a cut inside a character");
    if (whole) {
        PROPERTY(strcmp(s, cut) == 0, "cut although it fits");
        return;
    }
    PROPERTY(len >= mark && strcmp(cut + len - mark, TEXT_CUT_MARK) == 0, "no mark: %s", cut);
    PROPERTY(strncmp(s, cut, len - mark) == 0, "not its beginning");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    size_t most = strlen(TEXT_CUT_MARK) + 1 + fuzz_byte(&in);
    CLEANUP(free_str) char *s = fuzz_text(in.data, in.size);
    CLEANUP(free_str) char *cut = NULL;
    CLEANUP(free_str) char *cut_chars = NULL;
    struct err err = {0};

    if (!utf8_valid(s, strlen(s)))
        return 0;
    PROPERTY(text_encoded(s, strlen(s)) == written_size(s), "%zu and not %zu", text_encoded(s, strlen(s)),
             written_size(s));
    PROPERTY(text_cut(s, most, &cut, &err) == 0 && text_cut_chars(s, most, &cut_chars, &err) == 0, "%s",
             err.text);
    PROPERTY(written_size(cut) <= most, "%zu bytes of %zu", written_size(cut), most);
    PROPERTY(utf8_chars(cut_chars, strlen(cut_chars)) <= most, "more than %zu characters", most);
    check_cut(s, cut, written_size(s) <= most);
    check_cut(s, cut_chars, utf8_chars(s, strlen(s)) <= most);
    return 0;
}
