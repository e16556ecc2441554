/* What the tool and the library agree on: see steer.h. */
#include "steer.h"

#include <stdio.h>

void ov_steer_name(long pid, char name[OV_STEER_NAME_BYTES])
{
    snprintf(name, OV_STEER_NAME_BYTES, "ctl-%ld", pid);
}
