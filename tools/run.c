/*
 * overshot run: sets the environment and becomes the program.
 *
 * Every option of the table is a command line option here. It is checked, then travels in its environment variable, so
 * that programs started by the program get it too.
 */
#include "command.h"
#include "runtime/options.h"

#include <argp.h>
#include <ctype.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIBRARY_NAME     "libovershot.so"
#define LIBRARY_VARIABLE OV_OPTION_PREFIX "LIBRARY"

enum { KEY_BASE = 1000 };

/* ---- the library ---- */

/* Where it may be, from the folder of this tool: beside it, in the build folder, in the installation. */
static const char *const library_places[] = {
    LIBRARY_NAME,           "../shim/" LIBRARY_NAME,  OVERSHOT_LIBRARY_FROM_BIN "/" LIBRARY_NAME,
    "../lib/" LIBRARY_NAME, "../lib64/" LIBRARY_NAME,
};

static bool tool_folder(char *folder, size_t room)
{
    ssize_t length = readlink("/proc/self/exe", folder, room);
    if (length <= 0 || (size_t)length >= room) {
        return false;
    }
    folder[length] = '\0';
    *strrchr(folder, '/') = '\0';
    return true;
}

/* Puts its absolute path into `path`. Returns 0 or the exit status, the message printed. */
static int find_library(char path[PATH_MAX])
{
    const char *named = getenv(LIBRARY_VARIABLE);
    if (named && *named) {
        return realpath(named, path) ? 0
                                     : fail(EXIT_OWN_ERROR, "%s: %s (named by --library or " LIBRARY_VARIABLE ")",
                                            named, strerror(errno));
    }
    char folder[PATH_MAX], candidate[2 * PATH_MAX];
    if (!tool_folder(folder, sizeof(folder))) {
        return fail(EXIT_OWN_ERROR, "cannot tell where this tool is (/proc is needed); name " LIBRARY_NAME
                                    " with --library or " LIBRARY_VARIABLE);
    }
    for (size_t i = 0; i < sizeof(library_places) / sizeof(library_places[0]); i++) {
        snprintf(candidate, sizeof(candidate), "%s/%s", folder, library_places[i]);
        if (realpath(candidate, path)) {
            return 0;
        }
    }
    return fail(EXIT_OWN_ERROR,
                LIBRARY_NAME " was not found beside %s, nor in ../lib and ../shim; name it with --library "
                             "or " LIBRARY_VARIABLE,
                folder);
}

/* Whether the list, with spaces or colons between its elements, has the path. */
static bool preloaded(const char *list, const char *path)
{
    const size_t length = strlen(path);
    while (list && *list) {
        size_t element = strcspn(list, ": ");
        if (element == length && strncmp(list, path, length) == 0) {
            return true;
        }
        list += element;
        list += *list != '\0';
    }
    return false;
}

static int set_preload(const char *library)
{
    if (strpbrk(library, ": ")) {
        return fail(EXIT_OWN_ERROR, "%s cannot be preloaded: LD_PRELOAD takes no path with a space or a colon",
                    library);
    }
    const char *others = getenv("LD_PRELOAD");
    if (preloaded(others, library)) {
        return 0;
    }
    char *list = NULL;
    int length = others && *others ? asprintf(&list, "%s:%s", others, library) : asprintf(&list, "%s", library);
    if (length < 0 || setenv("LD_PRELOAD", list, 1) != 0) {
        return fail(EXIT_OWN_ERROR, "%s", strerror(ENOMEM));
    }
    free(list);
    return 0;
}

/* ---- the program ---- */

/* The path that execvp() would take, so that a message can come before it. Returns 0 or the exit status. */
static int find_program(const char *name, char path[PATH_MAX])
{
    const char *search = strchr(name, '/') ? "" : getenv("PATH");
    bool seen = false;
    if (!search) {
        search = "/bin:/usr/bin";
    }
    do {
        size_t length = strcspn(search, ":");
        snprintf(path, PATH_MAX, "%.*s%s%s", (int)length, search, length ? "/" : "", name);
        struct stat status;
        if (stat(path, &status) == 0 && !S_ISDIR(status.st_mode)) {
            if (access(path, X_OK) == 0) {
                return 0;
            }
            seen = true;
        }
        search += length;
    } while (*search++);
    return seen ? fail(EXIT_NOT_EXECUTABLE, "%s: not executable", name) : fail(EXIT_NOT_FOUND, "%s: not found", name);
}

/* The dynamic linker ignores LD_PRELOAD for these, which would otherwise look as if overshot did nothing. */
static const char *why_not_preloadable(const char *path)
{
    struct stat status;
    Elf64_Ehdr header;
    Elf64_Phdr segment;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    const char *reason = NULL;
    if (fd < 0 || fstat(fd, &status) != 0) {
        return NULL;
    }
    if ((status.st_mode & S_ISUID && status.st_uid != getuid()) ||
        (status.st_mode & S_ISGID && status.st_gid != getgid())) {
        reason = "it is setuid or setgid";
    } else if (pread(fd, &header, sizeof(header), 0) == sizeof(header) &&
               memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_ident[EI_CLASS] == ELFCLASS64 &&
               header.e_phentsize == sizeof(segment)) {
        reason = "it is statically linked";
        for (int i = 0; i < header.e_phnum; i++) {
            off_t place = (off_t)(header.e_phoff + (size_t)i * sizeof(segment));
            if (pread(fd, &segment, sizeof(segment), place) == sizeof(segment) && segment.p_type == PT_INTERP) {
                reason = NULL;
            }
        }
    }
    close(fd);
    return reason;
}

static int become(char **program)
{
    char library[PATH_MAX], path[PATH_MAX];
    int status = find_library(library);
    status = status ? status : set_preload(library);
    status = status ? status : find_program(program[0], path);
    if (status) {
        return status;
    }
    const char *reason = why_not_preloadable(path);
    if (reason) {
        fail(0, "%s runs without overshot: nothing can be preloaded, because %s", path, reason);
    }
    fflush(NULL);
    execvp(program[0], program);
    return errno == ENOENT ? fail(EXIT_NOT_FOUND, "%s: its interpreter was not found", path)
                           : fail(EXIT_NOT_EXECUTABLE, "%s: %s", path, strerror(errno));
}

/* ---- the command line ---- */

static char option_names[OV_OPTION_COUNT][64]; /* as words of the command line: "gpu-reserve" */

static error_t parse(int key, char *word, struct argp_state *state)
{
    char ***program = state->input;
    if (key >= KEY_BASE && key < KEY_BASE + OV_OPTION_COUNT) {
        const struct ov_option *option = &ov_option_table[key - KEY_BASE];
        const char *value = word ? word : "1"; /* a flag may stand alone */
        char variable[64], accepts[256];
        if (!ov_option_valid(option, value)) {
            ov_option_accepts(option, accepts, sizeof(accepts));
            argp_failure(state, EXIT_OWN_ERROR, 0, "--%s=%s is not accepted; it takes %s", option_names[key - KEY_BASE],
                         value, accepts);
        }
        snprintf(variable, sizeof(variable), OV_OPTION_PREFIX "%s", option->name);
        return setenv(variable, value, 1) == 0 ? 0 : errno;
    }
    if (key == ARGP_KEY_ARG) {
        *program = state->argv + state->next - 1;
        state->next = state->argc;
        return 0;
    }
    if (key == ARGP_KEY_NO_ARGS) {
        argp_error(state, "no program is named");
    }
    return ARGP_ERR_UNKNOWN;
}

static const char *value_name(enum ov_option_type type)
{
    static const char *const names[OV_TYPES] = {
        [OV_TYPE_FLAG] = "0|1",    [OV_TYPE_COUNT] = "N",       [OV_TYPE_REAL] = "X",      [OV_TYPE_BYTES] = "SIZE",
        [OV_TYPE_AMOUNT] = "SIZE", [OV_TYPE_SHARE] = "SIZE",    [OV_TYPE_CHOICE] = "WORD", [OV_TYPE_SET] = "WORDS",
        [OV_TYPE_SIZED] = "SIZE",  [OV_TYPE_NUMBERED] = "WORD", [OV_TYPE_SIZES] = "SIZES", [OV_TYPE_DEVICES] = "LIST",
        [OV_TYPE_PATH] = "FILE",
    };
    return names[type];
}

int command_run(int argc, char **argv)
{
    static char texts[OV_OPTION_COUNT][256];
    static struct argp_option options[OV_OPTION_COUNT + 1];
    for (size_t i = 0; i < OV_OPTION_COUNT; i++) {
        const struct ov_option *option = &ov_option_table[i];
        for (size_t j = 0; option->name[j] && j + 1 < sizeof(option_names[i]); j++) {
            option_names[i][j] = option->name[j] == '_' ? '-' : (char)tolower((unsigned char)option->name[j]);
        }
        snprintf(texts[i], sizeof(texts[i]), "%s%s%s%s", option->help, *option->default_text ? " (default " : "",
                 option->default_text, *option->default_text ? ")" : "");
        options[i] = (struct argp_option){.name = option_names[i],
                                          .key = KEY_BASE + (int)i,
                                          .arg = value_name(option->type),
                                          .flags = option->type == OV_TYPE_FLAG ? OPTION_ARG_OPTIONAL : 0,
                                          .doc = texts[i]};
    }
    const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "[--] PROGRAM [ARG...]",
        .doc = "Runs PROGRAM with " LIBRARY_NAME " in front of the CUDA driver."
               "\vAn option takes the place of the environment variable of its name: --budget that of " OV_OPTION_PREFIX
               "BUDGET. Exit status: the program's, or 125 when overshot itself failed, 126 when PROGRAM cannot be "
               "executed, "
               "127 when it was not found.",
    };
    char **program = NULL;
    error_t error = argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &program);
    if (error || !program) {
        return fail(EXIT_OWN_ERROR, "%s", strerror(error ? error : EINVAL));
    }
    return become(program);
}
