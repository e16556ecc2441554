/*
 * scribe: a small language model that writes text, on the CUDA driver API. The text depends on the weights, the prompt,
 * the seed and the temperature, and on nothing else: it is the same on every driver and GPU. scribe/MODEL.md says how
 * the weights were made.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scribe_model.h"

struct settings {
    const char *weights, *prompt;
    uint32_t tokens, window;
    uint64_t seed;
    float temperature;
    int stats, logits;
};

static const char usage[] =
    "Usage: scribe [options]\n"
    "  --weights FILE     safetensors file (scribe.safetensors in the source tree)\n"
    "  --prompt TEXT      what the text begins with; \\n is a new line (\"Genesis 1\\n\\n1 In the beginning \")\n"
    "  --tokens N         characters to write (200)\n"
    "  --temperature T    0: always the likeliest character (0.7)\n"
    "  --seed S           of the draws (1)\n"
    "  --window N         characters that the model looks back at (176)\n"
    "  --stats            time and memory on stderr\n"
    "  --logits           print the eight likeliest next characters after the prompt with their scores, and end\n"
    "Exit code: 0 done, 2 out of memory, 3 another driver error, 4 wrong options or files.\n";

static void parse(struct settings *settings, int argc, char **argv)
{
    static const struct option options[] = {
        {"weights", required_argument, NULL, 'w'}, {"prompt", required_argument, NULL, 'p'},
        {"tokens", required_argument, NULL, 'n'},  {"temperature", required_argument, NULL, 't'},
        {"seed", required_argument, NULL, 's'},    {"window", required_argument, NULL, 'c'},
        {"stats", no_argument, NULL, 'S'},         {"logits", no_argument, NULL, 'L'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
    };
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 'w':
            settings->weights = optarg;
            break;
        case 'p':
            settings->prompt = optarg;
            break;
        case 'n':
            settings->tokens = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 't':
            settings->temperature = strtof(optarg, NULL);
            break;
        case 's':
            settings->seed = strtoull(optarg, NULL, 10);
            break;
        case 'c':
            settings->window = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'S':
            settings->stats = 1;
            break;
        case 'L':
            settings->logits = 1;
            break;
        case 'h':
            fputs(usage, stdout);
            exit(0);
        default:
            exit(GPU_EXIT_SELF);
        }
    }
    if (optind < argc || settings->tokens > 1u << 24 || settings->window < 1 || settings->window > 1u << 20) {
        gpu_die("wrong options (see --help)");
    }
}

/* The prompt as tokens; its characters are below 128, \n is a line feed. */
static uint32_t read_prompt(const char *prompt, uint32_t *tokens, uint32_t vocabulary)
{
    uint32_t count = 0;
    for (const char *c = prompt; *c; c++) {
        const int line_feed = c[0] == '\\' && c[1] == 'n';
        tokens[count] = line_feed ? '\n' : (unsigned char)*c;
        c += line_feed;
        if (tokens[count++] >= vocabulary) {
            gpu_die("the prompt has a character that the model does not know");
        }
    }
    if (count == 0) {
        gpu_die("the prompt is empty");
    }
    return count;
}

/* Depends on seed and position only. */
static uint32_t draw(uint64_t seed, uint32_t position)
{
    uint64_t state = seed * 6364136223846793005u + position * 1442695040888963407u + 1;
    state ^= state >> 33;
    state *= 0xFF51AFD7ED558CCDu;
    state ^= state >> 29;
    return (uint32_t)(state >> 32);
}

static void print_likeliest(struct scribe_model *model)
{
    float *logits = malloc(model->vocabulary * sizeof *logits);
    if (!logits) {
        gpu_die("out of host memory");
    }
    GPU(cuStreamSynchronize, model->stream);
    GPU(cuMemcpyDtoH, logits, model->logits, model->vocabulary * sizeof *logits);
    for (int n = 0; n < 8; n++) {
        uint32_t best = 0;
        for (uint32_t j = 1; j < model->vocabulary; j++) {
            best = logits[j] > logits[best] ? j : best;
        }
        printf("%u %.4f\n", best, (double)logits[best]);
        logits[best] = -1e30f;
    }
    free(logits);
}

static void write_text(struct scribe_model *model, const struct settings *settings, uint32_t *tokens,
                       uint32_t prompt_count)
{
    const uint32_t end = prompt_count + settings->tokens;
    uint32_t *written;
    GPU(cuMemAllocHost, (void **)&written, sizeof *written);
    GPU(cuMemcpyHtoDAsync, model->tokens, tokens, prompt_count * sizeof *tokens, model->stream);
    for (uint32_t i = 0; i < prompt_count; i++) {
        putchar((int)tokens[i]);
    }
    for (uint32_t position = 0; position + 1 < end || position + 1 == prompt_count; position++) {
        scribe_model_step(model, position);
        if (position + 1 < prompt_count) {
            continue;
        }
        if (settings->logits) {
            putchar('\n');
            print_likeliest(model);
            break;
        }
        if (position + 1 == end) {
            break;
        }
        scribe_model_sample(model, position + 1, settings->temperature, draw(settings->seed, position));
        GPU(cuMemcpyDtoHAsync, written, model->tokens + (position + 1) * sizeof *written, sizeof *written,
            model->stream);
        GPU(cuStreamSynchronize, model->stream);
        putchar((int)*written);
        fflush(stdout);
    }
    GPU(cuMemFreeHost, written);
    putchar('\n');
}

/* What the process uses beyond `free_before`, by the driver's own account. */
static void print_stats(const struct scribe_model *model, float milliseconds, uint32_t positions, size_t free_before)
{
    size_t free_now, total;
    GPU(cuMemGetInfo, &free_now, &total);
    fprintf(stderr, "%.3f ms per token, %.1f MB of weights, device memory in use %.1f MB\n",
            (double)milliseconds / positions, (double)model->weight_bytes / 1e6,
            free_before > free_now ? (double)(free_before - free_now) / 1e6 : 0.0);
}

int main(int argc, char **argv)
{
    struct settings settings = {
        .weights = SCRIBE_WEIGHTS_DEFAULT,
        .prompt = "Genesis 1\\n\\n1 In the beginning ",
        .tokens = 200,
        .window = 176,
        .seed = 1,
        .temperature = 0.7f,
    };
    parse(&settings, argc, argv);
    gpu_open("scribe", GPU_ENTRY_LINK);
    CUdevice device;
    CUcontext context;
    size_t free_before, total;
    GPU(cuDeviceGet, &device, 0);
    GPU(cuDevicePrimaryCtxRetain, &context, device);
    GPU(cuCtxSetCurrent, context);
    GPU(cuMemGetInfo, &free_before, &total);

    struct scribe_model model;
    uint32_t *tokens = calloc(strlen(settings.prompt) + 1, sizeof *tokens);
    if (!tokens) {
        gpu_die("out of host memory");
    }
    scribe_model_open(&model, settings.weights, settings.window,
                      (uint32_t)strlen(settings.prompt) + settings.tokens + 1);
    const uint32_t prompt_count = read_prompt(settings.prompt, tokens, model.vocabulary);
    CUevent begin, end;
    float milliseconds;
    GPU(cuEventCreate, &begin, CU_EVENT_DEFAULT);
    GPU(cuEventCreate, &end, CU_EVENT_DEFAULT);
    GPU(cuEventRecord, begin, model.stream);
    write_text(&model, &settings, tokens, prompt_count);
    GPU(cuEventRecord, end, model.stream);
    GPU(cuEventSynchronize, end);
    GPU(cuEventElapsedTime, &milliseconds, begin, end);
    if (settings.stats) {
        print_stats(&model, milliseconds, prompt_count + settings.tokens, free_before);
    }
    GPU(cuEventDestroy, begin);
    GPU(cuEventDestroy, end);
    scribe_model_close(&model);
    GPU(cuDevicePrimaryCtxRelease, device);
    free(tokens);
    return 0;
}
