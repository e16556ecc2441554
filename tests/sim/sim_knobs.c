/* The SIM_ environment variables, read once. A malformed value ends the process: a test must not run with less than it
 * asked for. */
#include "sim.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sim_knobs sim_knobs;

enum knob_type { KNOB_INT, KNOB_BYTES, KNOB_REAL, KNOB_TEXT };

static const struct knob {
    const char *name;
    enum knob_type type;
    void *value;
    const char *standard;
} table[] = {
    {"SIM_DEVICES", KNOB_INT, &sim_knobs.devices, "1"},
    {"SIM_MEM", KNOB_BYTES, &sim_knobs.device_bytes, "8G"},
    {"SIM_PIN_LIMIT", KNOB_BYTES, &sim_knobs.pin_limit_bytes, "1T"},
    {"SIM_VA_LIMIT", KNOB_BYTES, &sim_knobs.va_limit_bytes, "64T"},
    {"SIM_LIMIT", KNOB_BYTES, &sim_knobs.limit_bytes, "0"},
    {"SIM_POISON", KNOB_BYTES, &sim_knobs.poison_bytes, "256K"},
    {"SIM_LINK_GBPS", KNOB_REAL, &sim_knobs.link_gbps, "55.2"},
    {"SIM_HBM_GBPS", KNOB_REAL, &sim_knobs.hbm_gbps, "4000"},
    {"SIM_PEER_GBPS", KNOB_REAL, &sim_knobs.peer_gbps, "374"},
    {"SIM_TFLOPS", KNOB_REAL, &sim_knobs.tflops, "50"},
    {"SIM_QUERY_NS", KNOB_REAL, &sim_knobs.query_ns, "350"},
    {"SIM_UPLOAD_NS", KNOB_REAL, &sim_knobs.upload_ns, "0"},
    {"SIM_CONTENTION", KNOB_REAL, &sim_knobs.contention, "0"},
    {"SIM_DRIVER_VERSION", KNOB_INT, &sim_knobs.driver_version, "13000"},
    {"SIM_REPORT", KNOB_TEXT, &sim_knobs.report, NULL},
    {"SIM_KERNELS", KNOB_TEXT, &sim_knobs.kernels, NULL},
    {"SIM_TRACE", KNOB_TEXT, &sim_knobs.trace, NULL},
};

struct failure {
    char *function;
    uint64_t call; /* 0 = every call */
    bool onwards;  /* and every later one */
    CUresult error;
};

struct delay {
    char *function;
    unsigned microseconds;
};

static struct failure *failures;
static size_t failure_count;
static struct delay *delays;
static size_t delay_count;
static const char *attributes_off, *missing;

static _Noreturn void bad(const char *name, const char *value)
{
    fprintf(stderr, "sim: bad value %s=%s\n", name, value);
    exit(2);
}

static uint64_t parse_bytes(const char *name, const char *text)
{
    static const char suffixes[] = "KMGT";
    char *end;
    double number = strtod(text, &end);
    const char *suffix = *end != '\0' ? strchr(suffixes, *end) : NULL;
    if (end == text || number < 0 || (*end != '\0' && (suffix == NULL || end[1] != '\0'))) {
        bad(name, text);
    }
    int shift = suffix != NULL ? 10 * (int)(suffix - suffixes + 1) : 0;
    return (uint64_t)(number * (double)((uint64_t)1 << shift));
}

static void parse(const struct knob *knob, const char *text)
{
    char *end = NULL;
    switch (knob->type) {
    case KNOB_INT:
        *(int *)knob->value = (int)strtol(text, &end, 10);
        break;
    case KNOB_REAL:
        *(double *)knob->value = strtod(text, &end);
        break;
    case KNOB_BYTES:
        *(uint64_t *)knob->value = parse_bytes(knob->name, text);
        return;
    case KNOB_TEXT:
        *(const char **)knob->value = text;
        return;
    }
    if (end == text || *end != '\0') {
        bad(knob->name, text);
    }
}

/* function:n:error,function:n+:error,function:*:error */
static void parse_failures(const char *text)
{
    char *copy = strdup(text), *save = NULL;
    for (char *item = strtok_r(copy, ",", &save); item != NULL; item = strtok_r(NULL, ",", &save)) {
        char name[128], call[32];
        unsigned error;
        if (sscanf(item, "%127[^:]:%31[^:]:%u", name, call, &error) != 3) {
            bad("SIM_FAIL", text);
        }
        struct failure *grown = realloc(failures, (failure_count + 1) * sizeof *failures);
        if (grown == NULL) {
            sim_die("out of host memory");
        }
        failures = grown;
        failures[failure_count].function = strdup(name);
        failures[failure_count].call = strcmp(call, "*") == 0 ? 0 : strtoull(call, NULL, 10);
        failures[failure_count].onwards = call[strlen(call) - 1] == '+';
        failures[failure_count].error = (CUresult)error;
        failure_count++;
    }
    free(copy);
}

/* function:microseconds,... */
static void parse_delays(const char *text)
{
    char *copy = strdup(text), *save = NULL;
    for (char *item = strtok_r(copy, ",", &save); item != NULL; item = strtok_r(NULL, ",", &save)) {
        char name[128];
        unsigned microseconds;
        if (sscanf(item, "%127[^:]:%u", name, &microseconds) != 2) {
            bad("SIM_DELAY", text);
        }
        struct delay *grown = realloc(delays, (delay_count + 1) * sizeof *delays);
        if (grown == NULL) {
            sim_die("out of host memory");
        }
        delays = grown;
        delays[delay_count++] = (struct delay){strdup(name), microseconds};
    }
    free(copy);
}

static int parse_choice(const char *name, const char *first, const char *second)
{
    const char *text = getenv(name);
    if (text == NULL || strcmp(text, first) == 0) {
        return 0;
    }
    if (strcmp(text, second) != 0) {
        bad(name, text);
    }
    return 1;
}

void sim_knobs_read(void)
{
    static int done;
    if (done) {
        return;
    }
    done = 1;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const char *text = getenv(table[i].name);
        text = text != NULL && *text != '\0' ? text : table[i].standard;
        if (text != NULL) {
            parse(&table[i], text);
        }
    }
    if (sim_knobs.devices < 0 || sim_knobs.devices > SIM_MAX_DEVICES) {
        bad("SIM_DEVICES", getenv("SIM_DEVICES"));
    }
    if (sim_knobs.contention < 0) {
        bad("SIM_CONTENTION", getenv("SIM_CONTENTION"));
    }
    sim_knobs.device_bytes &= ~(SIM_PAGE_BYTES - 1);
    sim_knobs.real_time = parse_choice("SIM_TIME", "virtual", "real");
    sim_knobs.race_abort = !parse_choice("SIM_RACE", "abort", "report");
    sim_knobs.opaque_maps = parse_choice("SIM_MAPS", "plain", "opaque");
    sim_knobs.late_node_events = parse_choice("SIM_NODE_EVENTS", "launched", "run");
    attributes_off = getenv("SIM_ATTR_OFF");
    missing = getenv("SIM_MISSING");
    if (getenv("SIM_FAIL") != NULL) {
        parse_failures(getenv("SIM_FAIL"));
    }
    if (getenv("SIM_DELAY") != NULL) {
        parse_delays(getenv("SIM_DELAY"));
    }
}

static int list_has(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; at != NULL && *at != '\0'; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, length) == 0 && (at[length] == ',' || at[length] == '\0')) {
            return 1;
        }
    }
    return 0;
}

int sim_knob_attribute_off(int attribute)
{
    char number[16];
    snprintf(number, sizeof number, "%d", attribute);
    return list_has(attributes_off, number);
}

int sim_knob_missing(const char *symbol)
{
    return list_has(missing, symbol);
}

CUresult sim_knob_failure(const char *function, uint64_t call)
{
    for (size_t i = 0; i < failure_count; i++) {
        bool meant =
            failures[i].call == 0 || failures[i].call == call || (failures[i].onwards && call > failures[i].call);
        if (meant && strcmp(failures[i].function, function) == 0) {
            return failures[i].error;
        }
    }
    return CUDA_SUCCESS;
}

unsigned sim_knob_delay(const char *function)
{
    for (size_t i = 0; i < delay_count; i++) {
        if (strcmp(delays[i].function, function) == 0) {
            return delays[i].microseconds;
        }
    }
    return 0;
}
