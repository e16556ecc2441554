/* Stands for libovershot.so: says on standard error that it was loaded. */
#include <stdio.h>

__attribute__((constructor)) static void loaded(void)
{
    fputs("probe loaded\n", stderr);
}
