/* overshot ctl: acts on what processes with libovershot.so have left or share. */
#include "command.h"
#include "runtime/share.h"

#include <stdio.h>
#include <string.h>

static unsigned seen;

static void tell(const char *name, bool removed, size_t bytes)
{
    seen++;
    if (removed) {
        printf("%s: removed, %zu MiB\n", name, bytes >> 20);
    } else {
        printf("%s: in use, left alone\n", name);
    }
}

/* Status 1: something is in use. */
static int cleanup(int argc, char **argv)
{
    const char *name = argc > 2 ? argv[2] : NULL;
    if (argc > 3) {
        return fail(EXIT_OWN_ERROR, "%s cleanup: unexpected \"%s\"", argv[0], argv[3]);
    }
    int left = ov_share_cleanup(NULL, name, tell);
    if (left < 0) {
        return fail(EXIT_OWN_ERROR, "%s cleanup: the folder in /dev/shm is not yours alone", argv[0]);
    }
    if (name != NULL && seen == 0) {
        return fail(EXIT_OWN_ERROR, "%s cleanup: nothing is shared as \"%s\"", argv[0], name);
    }
    return left > 0 ? 1 : 0;
}

int command_control(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } actions[] = {{"cleanup", cleanup}};
    if (argc < 2) {
        return fail(EXIT_OWN_ERROR, "%s: what? There is: cleanup [NAME]", argv[0]);
    }
    if (strcmp(argv[1], "--help") == 0) {
        puts("Usage: overshot ctl cleanup [NAME]\n"
             "Removes the host copies of weights that were shared as NAME (OVERSHOT_SHARE), or all, if no process\n"
             "uses them: processes that were killed leave them in /dev/shm. Status 1: some are in use.");
        return 0;
    }
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        if (strcmp(argv[1], actions[i].name) == 0) {
            return actions[i].run(argc, argv);
        }
    }
    return fail(EXIT_OWN_ERROR, "%s: no action is named \"%s\"; there is: cleanup [NAME]", argv[0], argv[1]);
}
