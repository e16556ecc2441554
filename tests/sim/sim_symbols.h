/*
 * The library's own exported functions by name, without dlsym (see sim_symbols.c). NULL: not exported. Any thread, any
 * time, also before cuInit.
 */
#ifndef SIM_SYMBOLS_H
#define SIM_SYMBOLS_H

void *sim_own_symbol(const char *name);

#endif
