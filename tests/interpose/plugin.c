/* A library whose constructor uses the driver, slowly. */
#include <cuda.h>
#include <unistd.h>

#include "record.h"

__attribute__((constructor)) static void loaded(void)
{
    CUdeviceptr address;
    usleep(50000);
    record("plugin result=%d", cuMemAlloc(&address, 4711));
}
