/* overshot: the command line tool. Finds the command in a table and hands over. */
#include "command.h"

#include <argp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct command {
    const char *name, *words, *help;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"run", "[OPTION...] [--] PROGRAM [ARG...]", "run a program with libovershot.so in front of the CUDA driver",
     command_run},
    {"plan", "PROFILE.json", "what a budget would cost a program that was profiled", command_plan},
    {"options", "", "describe every option, its environment variable and its default", command_options},
    {"ctl", "PID REQUEST...", "steer a program that runs, or clean up after some", command_control},
    {"env-example", "", "print all variables with their defaults as a file", command_env_example},
};
enum { COMMANDS = sizeof(commands) / sizeof(commands[0]) };

const char *argp_program_version = "overshot " OVERSHOT_VERSION;

int fail(int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("overshot: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return status;
}

int refuse_words(int argc, char **argv)
{
    return argc > 1 ? fail(EXIT_OWN_ERROR, "%s: unexpected \"%s\"", argv[0], argv[1]) : 0;
}

static char *list_commands(int key, const char *text, void *input)
{
    (void)input;
    if (key != ARGP_KEY_HELP_POST_DOC) {
        return (char *)(uintptr_t)text; /* argp compares it with what it gave */
    }
    char *list = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&list, &length);
    if (!out) {
        return NULL;
    }
    fputs("Commands:\n", out);
    for (int i = 0; i < COMMANDS; i++) {
        fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].help);
    }
    fputs("\n`overshot COMMAND --help` says more about one.", out);
    return fclose(out) == 0 ? list : NULL;
}

struct choice {
    const struct command *command;
    int first_word;
};

static error_t parse(int key, char *word, struct argp_state *state)
{
    struct choice *choice = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        for (int i = 0; i < COMMANDS; i++) {
            if (strcmp(word, commands[i].name) == 0) {
                choice->command = &commands[i];
            }
        }
        if (!choice->command) {
            argp_error(state, "no command is named \"%s\"", word);
        }
        choice->first_word = state->next - 1;
        state->next = state->argc; /* the rest is the command's */
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_usage(state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse,
        .args_doc = "COMMAND [ARG...]",
        .doc = "Runs CUDA inference programs whose weights overshoot the GPU's memory."
               "\v", /* what follows comes after the options */
        .help_filter = list_commands,
    };
    struct choice choice = {NULL, 0};
    argp_err_exit_status = EXIT_OWN_ERROR;
    error_t error = argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &choice);
    if (error || !choice.command) {
        return fail(EXIT_OWN_ERROR, "%s", strerror(error));
    }
    char name[64];
    snprintf(name, sizeof(name), "overshot %s", choice.command->name);
    argv[choice.first_word] = name;
    return choice.command->run(argc - choice.first_word, argv + choice.first_word);
}
