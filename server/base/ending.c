#include "base/ending.h"

static const struct {
    const char *name, *detail;
} table[] = {[END_NONE] = {"", ""},
#define X(code, name, detail) [code] = {name, detail},
             ENDING_TABLE(X)
#undef X
};

const char *ending_name(enum ending e)
{
    return table[e].name;
}

const char *ending_detail(enum ending e)
{
    return table[e].detail;
}
