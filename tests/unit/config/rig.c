#include "rig.h"

const char *rig_load(const char *yaml, struct config **ret)
{
    static char out[16384];
    char *dir = scratch_dir(), *path = scratch_path(dir, "cloister.yaml");
    struct json_faults faults = {0};
    struct config *c = NULL;
    struct err err = {0};
    json_t *fault;
    size_t i;

    out[0] = '\0';
    if (yaml) {
        FILE *file = fopen(path, "w");
        cr_assert_not_null(file);
        fputs(yaml, file);
        fclose(file);
    }
    int rc = config_load(yaml ? path : NULL, &c, &faults, &err);
    cr_assert_eq(rc < 0, c == NULL);
    json_array_foreach(faults.list, i, fault) {
        size_t len = strlen(out);
        snprintf(out + len, sizeof out - len, "%s: %s\n", json_str(fault, "pointer"),
                 json_str(fault, "detail"));
    }
    if (rc < 0 && faults.total == 0)
        snprintf(out, sizeof out, "%s", err.text);
    if (rc < 0)
        cr_assert_eq(err.code, ERR_CONFIG, "%s", err.text);
    json_faults_free(&faults);
    if (ret && c)
        *ret = STEAL(c);
    config_free(c);
    free(path);
    scratch_remove(dir);
    return out;
}
