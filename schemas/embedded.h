/* schemas/embedded.h: the files of schemas/ inside the binary (made by cmake/embed.cmake). */
#pragma once

struct embedded_file {
    const char *name; /* without .json; NULL ends the table */
    const char *data; /* NUL-terminated */
    unsigned long len;
};

extern const struct embedded_file embedded_schemas[];
