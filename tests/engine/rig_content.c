/* What weights hold. Compiled without sanitizers, which would take most of a program's time for it. */
#include "probe_digest.h"
#include "rig.h"

uint32_t rig_digest(const uint32_t *words, size_t count)
{
    return probe_digest_of(words, count);
}

void rig_refill(struct rig_weight *weight)
{
    static uint32_t salt;
    salt += 0x9E3779B9u;
    for (size_t i = 0; i < weight->bytes / 4; i++) {
        weight->host[i] = (uint32_t)(i + 1) * 2654435761u ^ salt;
    }
    rig_changed(weight);
}
