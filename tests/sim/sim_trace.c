/* The launch trace. See sim_trace.h. */
#define _GNU_SOURCE
#include "sim_trace.h"

#include <stdio.h>

static void write_hex(FILE *file, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        fprintf(file, "%02x", ((const unsigned char *)data)[i]);
}

void sim_trace_launch(const struct sim_launch *launch, const struct sim_lane *lane)
{
    static FILE *file;
    static int failed;
    if (sim_knobs.trace == NULL || sim_knobs.trace[0] == '\0' || failed)
        return;
    if (file == NULL && (file = fopen(sim_knobs.trace, "ae")) == NULL) {
        failed = 1;
        sim_say("cannot write the trace %s", sim_knobs.trace);
        return;
    }
    fprintf(file, "{\"kernel\":\"%s\",\"form\":\"%s\",\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u],\"shared_bytes\":%u",
            launch->func->site, launch->form, launch->grid[0], launch->grid[1], launch->grid[2], launch->block[0],
            launch->block[1], launch->block[2], launch->shared_bytes);
    fprintf(file, ",\"device\":%d,\"stream\":%llu,\"extra\":%s,\"library_kernel\":%s,\"attributes\":[",
            lane->context->device->ordinal, (unsigned long long)lane->id, launch->from_extra ? "true" : "false",
            launch->kernel != NULL ? "true" : "false");
    for (unsigned i = 0; i < launch->attribute_count; i++) {
        fprintf(file, "%s{\"id\":%d,\"value\":\"", i != 0 ? "," : "", (int)launch->attribute[i].id);
        write_hex(file, &launch->attribute[i].value, sizeof launch->attribute[i].value);
        fprintf(file, "\"}");
    }
    fprintf(file, "],\"params\":\"");
    write_hex(file, launch->bytes, launch->func->kernel->param_bytes);
    fprintf(file, "\"}\n");
    fflush(file);
}
