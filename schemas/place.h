/* schemas/place.h: where in a value a check is, and what is wrong there. For the sanitizer's files only. */
#pragma once

#include "base/json.h"

/* A chain of stack frames: the pointer is only written out when there is a fault. */
struct place {
    const struct place *up; /* NULL at the value itself */
    const char *key;        /* member, or the prefix given by the caller at the top */
    size_t index;           /* element when key is NULL */
};

#define TOP(pointer)    ((struct place){.key = (pointer)})
#define MEMBER(up, key) ((struct place){(up), (key), 0})
#define ELEMENT(up, i)  ((struct place){(up), NULL, (i)})

/* Adds a fault; -1. A pointer over 1 KiB is cut to the nearest ancestor that fits. */
int place_fault(struct json_faults *faults, const struct place *at, const char *fmt, ...) FORMAT(3, 4);
/* json_schema_local at a place. */
void place_check_schema(const json_t *schema, const struct place *at, struct json_faults *faults);

/* jansson's iterators take a plain pointer, although they only read. */
static inline json_t *place_iterable(const json_t *object)
{
    return (json_t *)(uintptr_t)object;
}
