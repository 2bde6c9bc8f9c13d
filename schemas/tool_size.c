#include "schemas/tool_size.h"

#include <string.h>

static int json_length(const json_t *value, size_t *ret, struct err *err)
{
    CLEANUP(free_str) char *text = NULL;

    if (json_text(value, &text, err) < 0)
        return -1;
    *ret = strlen(text);
    return 0;
}

int tool_size(const json_t *tools, size_t most, size_t *ret, struct err *err)
{
    size_t size = 0;

    if (json_length(tools, &size, err) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        size_t description = 0;
        if (json_length(json_object_get(function, "description"), &description, err) < 0)
            return -1;
        description -= strlen("\"\"");
        size -= description > most ? description - most : 0;
    }
    *ret = size;
    return 0;
}
