/* The JSON report at exit: virtual time, bytes, engines, calls. */
#include "sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void write_devices(FILE *file)
{
    fprintf(file, "  \"devices\": [");
    for (int i = 0; i < sim_knobs.devices; i++) {
        const struct sim_device *device = &sim_devices[i];
        fprintf(file,
                "%s\n    {\"peak_bytes\": %" PRIu64 ", \"current_bytes\": %" PRIu64 ", \"h2d_bytes\": %" PRIu64
                ", \"d2h_bytes\": %" PRIu64 ", \"copy_busy_ns\": %" PRId64 ", \"d2h_busy_ns\": %" PRId64
                ", \"kernel_busy_ns\": %" PRId64 "}",
                i > 0 ? "," : "", sim_pool_peak((unsigned)i), sim_pool_used((unsigned)i), device->h2d_bytes,
                device->d2h_bytes, device->h2d.busy_ns, device->d2h.busy_ns, device->kernel_busy_ns);
    }
    fprintf(file, "\n  ],\n");
}

static void write_calls(FILE *file)
{
    const char *separator = "";
    fprintf(file, "  \"calls\": {");
    for (const struct sim_function *function = sim_functions; function != NULL; function = function->next) {
        fprintf(file, "%s\n    \"%s\": %" PRIu64, separator, function->name, function->calls);
        separator = ",";
    }
    fprintf(file, "\n  }\n");
}

/* A %p in the name becomes the process number, so that children do not overwrite each other. */
static void path_make(char *path, size_t room)
{
    const char *mark = strstr(sim_knobs.report, "%p");
    if (mark == NULL) {
        snprintf(path, room, "%s", sim_knobs.report);
    } else {
        snprintf(path, room, "%.*s%ld%s", (int)(mark - sim_knobs.report), sim_knobs.report, (long)getpid(), mark + 2);
    }
}

void sim_report_write(void)
{
    char path[4096];
    if (sim_knobs.report == NULL) {
        return;
    }
    path_make(path, sizeof path);
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        sim_say("cannot write the report %s", path);
        return;
    }
    fprintf(file, "{\n  \"virtual_ns\": %" PRId64 ",\n", sim_makespan());
    write_devices(file);
    fprintf(file,
            "  \"pinned_bytes\": %" PRIu64 ",\n  \"pinned_peak_bytes\": %" PRIu64 ",\n  \"races\": %" PRIu64 ",\n",
            sim_pin_used(), sim_pin_peak(), sim_race_count);
    write_calls(file);
    fprintf(file, "}\n");
    fclose(file);
}
