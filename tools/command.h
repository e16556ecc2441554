/*
 * command.h - the subcommands of `overshot`, one row each in overshot.c, and what they share.
 *
 * A command gets the words that follow its name: argv[0] is "overshot NAME", for messages, and argv[argc] is NULL. It
 * returns the exit status of the tool. Messages go to standard error through fail(), one line each; results to standard
 * output.
 */
#ifndef OVERSHOT_COMMAND_H
#define OVERSHOT_COMMAND_H

/* As env(1), nice(1) and their kind: what cannot be confused with a status of the program that is run. */
enum { EXIT_OWN_ERROR = 125, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };

int command_run(int argc, char **argv);
int command_env_example(int argc, char **argv);
int command_control(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_options(int argc, char **argv);

/* Prints "overshot: ..." and returns status. */
int fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* For a command that takes no words: 0, or the status with which to end after a message. */
int refuse_words(int argc, char **argv);

#endif
