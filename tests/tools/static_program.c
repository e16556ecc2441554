/* A program into which nothing can be preloaded. */
#include <stdio.h>

int main(void)
{
    puts("static program ran");
    return 0;
}
