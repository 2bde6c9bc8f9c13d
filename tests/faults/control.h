/* control.h: the page through which a test steers the library, mapped by both. The test's side of it is in
 * tests/integration/lib/faults.py: the same fields in the same order, 8 bytes each. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#define TRACE_MAX   32
#define PLACES_MAX  65536 /* a power of two */
#define PLACE_DEPTH 8     /* callers that make a place */

enum kind {
    KIND_NONE,
    KIND_ALLOC,  /* malloc and its kin; what strdup, asprintf and the libraries allocate is among it */
    KIND_FILE,   /* whatever changes files and folders */
    KIND_SOCKET, /* whatever sends */
    KINDS
};

struct control {
    /* Written by the test, `kind` last. */
    _Atomic int64_t kind;      /* which calls fail; KIND_NONE: none */
    _Atomic int64_t by_place;  /* not 0: one call fails, the next from a place that has not failed yet */
    _Atomic int64_t countdown; /* else the call of this number (1: the next) is the first that fails */
    _Atomic int64_t length;    /* so many calls in a row fail */
    _Atomic int64_t error;     /* their errno; 0: they write the first half only, and others do not count */
    /* Written by the library. */
    _Atomic int64_t hits;         /* calls that failed since the test set this to 0 */
    _Atomic int64_t calls[KINDS]; /* all calls of each kind */
    _Atomic int64_t live;         /* allocations that were not freed */
    _Atomic int64_t trace_length;
    _Atomic uint64_t trace[TRACE_MAX];   /* return addresses of the first call that failed */
    _Atomic uint64_t places[PLACES_MAX]; /* that have failed: a hash of their callers; 0: free */
};
