/* overshot ctl: acts on what processes with libovershot.so have left or share. */
#include "command.h"
#include "runtime/service.h"
#include "runtime/share.h"
#include "runtime/steer.h"
#include "runtime/value.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

/* ---- a running program ---- */

static const struct {
    const char *word, *argument, *help;
} requests[] = {
    {"status", NULL, "what is where now"},
    {"timing", NULL, "what the last passes took, weight by weight (OVERSHOT_TIMING)"},
    {"budget", "SIZE", "another budget, on each GPU"},
    {"restore", NULL, "everything back to the GPU, if it fits there"},
    {"replan", NULL, "the plan anew"},
    {"pause", NULL, "no plan is made or changed, and nothing is looked for"},
    {"resume", NULL, "what pause ended goes on"},
    {"suspend-profile", NULL, "nothing is timed for profiles, and none is written"},
    {"resume-profile", NULL, "what suspend-profile ended goes on"},
};
enum { REQUESTS = sizeof(requests) / sizeof(requests[0]) };

/* Whether it is one of the requests, with an argument where it takes one. */
static bool is_request(const char *text)
{
    const size_t length = strcspn(text, "=");
    for (int i = 0; i < REQUESTS; i++) {
        if (strlen(requests[i].word) == length && strncmp(requests[i].word, text, length) == 0) {
            size_t bytes;
            return (text[length] == '=') == (requests[i].argument != NULL) &&
                   (text[length] == '\0' || (ov_value_bytes(text + length + 1, &bytes) && bytes >= (size_t)8 << 20));
        }
    }
    return false;
}

/* Sends one request and prints the answer. Status 1: it was refused, or nobody answered. */
static int steer(const char *name, long pid, const char *text)
{
    char service[OV_STEER_NAME_BYTES], answer[4096], first[6] = "";
    size_t length = 0; /* of the answer, which may be long */
    ssize_t got;
    ov_steer_name(pid, service);
    const int connection = ov_service_connect(service);
    if (connection < 0) {
        return fail(1,
                    "%s: process %ld cannot be reached: it is not there or not yours, has not used half of its budget "
                    "yet, or has OVERSHOT_CONTROL=0",
                    name, pid);
    }
    (void)ov_service_wait(connection, OV_STEER_WAIT_SECONDS + 5);
    if (send(connection, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text)) {
        while ((got = recv(connection, answer, sizeof(answer), 0)) > 0) {
            for (ssize_t i = 0; i < got && length + (size_t)i < sizeof(first) - 1; i++) {
                first[length + (size_t)i] = answer[i];
            }
            length += (size_t)got;
            fwrite(answer, 1, (size_t)got, stdout);
        }
    }
    close(connection);
    if (length == 0) {
        return fail(1, "%s: process %ld does not answer", name, pid);
    }
    return strcmp(first, "error") == 0 ? 1 : 0;
}

static int steer_all(int argc, char **argv, long pid)
{
    int status = 0;
    if (argc < 3) {
        return fail(EXIT_OWN_ERROR, "%s %ld: what? `%s --help` lists the requests", argv[0], pid, argv[0]);
    }
    for (int i = 2; i < argc; i++) { /* all are looked at before the first is sent */
        if (!is_request(argv[i])) {
            return fail(EXIT_OWN_ERROR,
                        "%s: \"%s\" is no request, or its size is none of at least 8M; `%s --help` lists them", argv[0],
                        argv[i], argv[0]);
        }
    }
    for (int i = 2; i < argc && status == 0; i++) {
        status = steer(argv[0], pid, argv[i]);
    }
    return status;
}

static void print_help(void)
{
    puts("Usage: overshot ctl PID REQUEST...\n"
         "       overshot ctl cleanup [NAME]\n"
         "Asks something of a program that runs with overshot, by its process number. Programs are reached once they "
         "have\n"
         "used half of their budget. What changes memory is done when the program next waits for the GPU. Requests:");
    for (int i = 0; i < REQUESTS; i++) {
        char text[32];
        snprintf(text, sizeof(text), "%s%s%s", requests[i].word, requests[i].argument ? "=" : "",
                 requests[i].argument ? requests[i].argument : "");
        printf("  %-15s %s\n", text, requests[i].help);
    }
    puts("\ncleanup removes the host copies of weights that were shared as NAME (OVERSHOT_SHARE), or all, if no "
         "process\n"
         "uses them: processes that were killed leave them in /dev/shm.\n"
         "Exit status: 0; 1 if the program cannot be reached or refuses, or copies are in use; 125 if the command line "
         "is\n"
         "wrong.");
}

int command_control(int argc, char **argv)
{
    double pid;
    if (argc < 2) {
        return fail(EXIT_OWN_ERROR, "%s: what? There is: cleanup [NAME], and PID REQUEST...", argv[0]);
    }
    if (strcmp(argv[1], "--help") == 0) {
        print_help();
        return 0;
    }
    if (strcmp(argv[1], "cleanup") == 0) {
        return cleanup(argc, argv);
    }
    if (ov_value_real(argv[1], &pid) && pid >= 1 && pid < 1e9 && pid == (double)(long)pid) {
        return steer_all(argc, argv, (long)pid);
    }
    return fail(EXIT_OWN_ERROR, "%s: \"%s\" is neither a process number nor an action; there is: cleanup [NAME]",
                argv[0], argv[1]);
}
