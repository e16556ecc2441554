#include "ledger.h"

/* The driver serves small requests from blocks of this size, and these are what memory it takes. */
#define SMALL_BLOCK ((size_t)2 << 20)

size_t ov_ledger_held(const struct ov_ledger *ledger)
{
    size_t sum = 0;
    for (int i = 0; i < OV_PURPOSES; i++) {
        sum += ledger->held_bytes[i];
    }
    return sum;
}

size_t ov_ledger_left(const struct ov_ledger *ledger)
{
    size_t held =
        ov_ledger_held(ledger) + ledger->set_aside_bytes[OV_FOR_SCRATCH] + ledger->set_aside_bytes[OV_FOR_SMALL];
    return held < ledger->budget_bytes ? ledger->budget_bytes - held : 0;
}

void ov_ledger_add(struct ov_ledger *ledger, enum ov_purpose purpose, size_t bytes)
{
    ledger->held_bytes[purpose] += bytes;
    size_t held = ov_ledger_held(ledger);
    if (held > ledger->peak_bytes) {
        ledger->peak_bytes = held;
    }
}

bool ov_ledger_take(struct ov_ledger *ledger, enum ov_purpose purpose, size_t bytes)
{
    if (purpose == OV_FOR_SCRATCH) {
        ledger->set_aside_bytes[OV_FOR_SCRATCH] = 0;
    }
    if (bytes > ov_ledger_left(ledger)) {
        return false;
    }
    ov_ledger_add(ledger, purpose, bytes);
    return true;
}

void ov_ledger_give(struct ov_ledger *ledger, enum ov_purpose purpose, size_t bytes)
{
    ledger->held_bytes[purpose] -= bytes;
}

/* Blocks fill up unevenly: half as much again as the sum needs. */
static size_t small_held(size_t small_bytes)
{
    return (small_bytes + small_bytes / 2 + SMALL_BLOCK - 1) / SMALL_BLOCK * SMALL_BLOCK;
}

static size_t small_wanted(const struct ov_ledger *ledger, size_t bytes)
{
    return small_held(ledger->small_bytes + ledger->kept_bytes[OV_FOR_SMALL] + bytes);
}

bool ov_ledger_small_grows(const struct ov_ledger *ledger, size_t bytes)
{
    return small_wanted(ledger, bytes) > ledger->held_bytes[OV_FOR_SMALL];
}

bool ov_ledger_small_fits(const struct ov_ledger *ledger, size_t bytes)
{
    size_t wanted = small_wanted(ledger, bytes), has = ledger->held_bytes[OV_FOR_SMALL];
    size_t more = wanted > has ? wanted - has : 0;
    size_t held = ov_ledger_held(ledger) + ledger->set_aside_bytes[OV_FOR_SCRATCH];
    return more == 0 || (held < ledger->budget_bytes && more <= ledger->budget_bytes - held);
}

void ov_ledger_small(struct ov_ledger *ledger, size_t add_bytes, size_t remove_bytes)
{
    ledger->small_bytes += add_bytes - remove_bytes;
    size_t held = ledger->held_bytes[OV_FOR_SMALL], wanted = small_wanted(ledger, 0);
    /* Blocks go back only when they are empty, and which are is not known before all are. */
    wanted = wanted > 0 && wanted < held ? held : wanted;
    ledger->held_bytes[OV_FOR_SMALL] = 0;
    ledger->set_aside_bytes[OV_FOR_SMALL] = 0;
    ov_ledger_add(ledger, OV_FOR_SMALL, wanted);
}

void ov_ledger_keep(struct ov_ledger *ledger, enum ov_purpose purpose, size_t bytes)
{
    ledger->kept_bytes[purpose] += bytes;
    ledger->small_bytes -= purpose == OV_FOR_SMALL ? bytes : 0;
}

void ov_ledger_kept(struct ov_ledger *ledger, size_t most_bytes)
{
    size_t *small = &ledger->kept_bytes[OV_FOR_SMALL], *foreign = &ledger->kept_bytes[OV_FOR_FOREIGN];
    if (*small > most_bytes) {
        *small = most_bytes;
        ov_ledger_small(ledger, 0, 0);
    }
    if (*foreign > most_bytes) {
        ov_ledger_give(ledger, OV_FOR_FOREIGN, *foreign - most_bytes);
        *foreign = most_bytes;
    }
}

size_t ov_ledger_host_left(const struct ov_ledger *ledger)
{
    size_t gone = ledger->host_bytes + ledger->host_aside_bytes;
    return gone < ledger->host_limit_bytes ? ledger->host_limit_bytes - gone : 0;
}

bool ov_ledger_take_host(struct ov_ledger *ledger, size_t bytes)
{
    if (bytes > ov_ledger_host_left(ledger)) {
        return false;
    }
    ledger->host_bytes += bytes;
    if (ledger->host_bytes > ledger->host_peak_bytes) {
        ledger->host_peak_bytes = ledger->host_bytes;
    }
    return true;
}

void ov_ledger_give_host(struct ov_ledger *ledger, size_t bytes)
{
    ledger->host_bytes -= bytes;
}
