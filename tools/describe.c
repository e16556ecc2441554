/* overshot options, overshot env-example: the option table (runtime/options.def) as text. */
#include "command.h"
#include "runtime/options.h"

#include <stdio.h>
#include <string.h>

enum { COLUMNS = 100 };

/* Words of text, each line after `indent`, broken at COLUMNS. */
static void print_wrapped(const char *indent, const char *text)
{
    size_t column = 0;
    while (*text) {
        size_t word = strcspn(text, " ");
        if (column && column + 1 + word > COLUMNS) {
            putchar('\n');
            column = 0;
        }
        column += (size_t)printf("%s%.*s", column ? " " : indent, (int)word, text);
        text += word;
        text += *text == ' ';
    }
    putchar('\n');
}

static void print_choices(const char *indent, const struct ov_option *option)
{
    for (size_t i = 0; i < OV_CHOICE_COUNT; i++) {
        if (ov_choice_table[i].offset == option->offset) {
            printf("%s  %-9s %s\n", indent, ov_choice_table[i].word, ov_choice_table[i].meaning);
        }
    }
}

static void print_accepts(const char *indent, const struct ov_option *option)
{
    char accepts[256], line[300];
    ov_option_accepts(option, accepts, sizeof(accepts));
    snprintf(line, sizeof(line), "Accepts %s.", accepts);
    print_wrapped(indent, line);
}

int command_env_example(int argc, char **argv)
{
    int status = refuse_words(argc, argv);
    if (status) {
        return status;
    }
    puts("# Every variable that overshot reads, with its default. Made by: overshot env-example > env.example\n"
         "# To use it: take the # off what you change, then: set -a; . ./env.example; set +a");
    for (size_t i = 0; i < OV_OPTION_COUNT; i++) {
        const struct ov_option *option = &ov_option_table[i];
        char help[200];
        snprintf(help, sizeof(help), "%c%s.", option->help[0] & ~0x20, option->help + 1);
        putchar('\n');
        print_wrapped("# ", help);
        if (*option->details) {
            print_wrapped("# ", option->details);
        }
        print_accepts("# ", option);
        print_choices("# ", option);
        printf("#" OV_OPTION_PREFIX "%s=%s\n", option->name, option->default_text);
    }
    return 0;
}

int command_options(int argc, char **argv)
{
    int status = refuse_words(argc, argv);
    if (status) {
        return status;
    }
    puts("Options are environment variables; `overshot run` takes each as --name too (--gpu-reserve "
         "for\n" OV_OPTION_PREFIX
         "GPU_RESERVE). A variable that is empty counts as unset. If one has a value that is not\n"
         "accepted, overshot says so and lets the program run as if overshot were not there.");
    for (size_t i = 0; i < OV_OPTION_COUNT; i++) {
        const struct ov_option *option = &ov_option_table[i];
        printf("\n" OV_OPTION_PREFIX "%s (default: %s)\n", option->name,
               *option->default_text ? option->default_text : "empty");
        char help[200];
        snprintf(help, sizeof(help), "%c%s.", option->help[0] & ~0x20, option->help + 1);
        print_wrapped("    ", help);
        if (*option->details) {
            print_wrapped("    ", option->details);
        }
        print_accepts("    ", option);
        print_choices("    ", option);
    }
    return 0;
}
