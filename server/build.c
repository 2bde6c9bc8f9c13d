#include "build.h"

#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#define ALIGN4(n) (((n) + 3u) & ~(size_t)3)

/* Looks through the notes of the main program only. */
static int find_note(struct dl_phdr_info *info, size_t size, void *out)
{
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        const char *p = (const char *)(info->dlpi_addr + segment->p_vaddr), *end = p + segment->p_memsz;
        if (segment->p_type != PT_NOTE)
            continue;
        while (p + sizeof(ElfW(Nhdr)) <= end) {
            ElfW(Nhdr) note;
            memcpy(&note, p, sizeof note);
            const char *name = p + sizeof note;
            const unsigned char *id = (const unsigned char *)name + ALIGN4(note.n_namesz);
            if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && memcmp(name, "GNU", 4) == 0) {
                for (unsigned n = 0; n < note.n_descsz && n < 20; n++)
                    snprintf((char *)out + 2 * n, 3, "%02x", id[n]);
                return 1;
            }
            p = (const char *)id + ALIGN4(note.n_descsz);
        }
    }
    return 1;
}

const char *build_id(void)
{
    static char hex[41];

    if (!hex[0])
        dl_iterate_phdr(find_note, hex);
    return hex;
}
