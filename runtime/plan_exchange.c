/* Streamed units for resident ones, and filling the budget to the last page: see plan_tiers.h. */
#include "plan_tiers.h"

bool ov_plan_exchangeable(const struct ov_plan_book *book, const struct ov_plan_draft *draft, uint32_t unit)
{
    const struct ov_plan_place *place = &draft->place[unit];
    const bool streamed = place->tier == OV_TIER_STREAMED;

    return book->groups.of_start[unit] == book->groups.of_start[unit + 1] && /* else the ring may have to be deeper */
           (streamed || (place->tier == OV_TIER_RESIDENT && place->reason != OV_PLAN_LARGE)) &&
           ov_plan_can_be(book, unit, OV_TIER_STREAMED) && ov_plan_can_be(book, unit, OV_TIER_RESIDENT);
}

void ov_plan_exchange(struct ov_plan_book *book, struct ov_plan_draft *draft, uint32_t streamed, uint32_t resident,
                      enum ov_plan_reason reason)
{
    ov_plan_settle(book, draft, resident, OV_TIER_STREAMED, OV_PLAN_CYCLE);
    ov_plan_settle(book, draft, streamed, OV_TIER_RESIDENT, reason);
}

enum { SIZES_AT_MOST = 64, EXCHANGES = 32 };

/* Units of one size that could be exchanged. */
struct sizes {
    size_t count;
    struct {
        uint32_t pages, loads, streamed, resident; /* the numbers of units */
    } item[SIZES_AT_MOST];
};

static bool count_sizes(const struct ov_plan_book *book, const struct ov_plan_draft *draft, struct sizes *sizes)
{
    sizes->count = 0;
    for (uint32_t unit = 0; unit < book->unit_count; unit++) {
        const struct ov_plan_place *place = &draft->place[unit];
        size_t i = 0;
        if (!ov_plan_exchangeable(book, draft, unit) || place->pages > draft->largest_pages) {
            continue;
        }
        while (i < sizes->count &&
               (sizes->item[i].pages != place->pages || sizes->item[i].loads != book->loads[unit])) {
            i++;
        }
        if (i == SIZES_AT_MOST) {
            return false;
        }
        if (i == sizes->count) {
            sizes->item[sizes->count].pages = place->pages;
            sizes->item[sizes->count].loads = book->loads[unit];
            sizes->item[sizes->count].streamed = sizes->item[sizes->count].resident = 0;
            sizes->count++;
        }
        sizes->item[i].streamed += place->tier == OV_TIER_STREAMED;
        sizes->item[i].resident += place->tier == OV_TIER_RESIDENT;
    }
    return true;
}

/* A pair that are next to each other in the cycle, so that what is even stays so. */
static void exchange_sizes(struct ov_plan_book *book, struct ov_plan_draft *draft, const struct sizes *sizes,
                           size_t streamed, size_t resident)
{
    uint32_t last[2] = {UINT32_MAX, UINT32_MAX}, best[2] = {UINT32_MAX, UINT32_MAX};
    size_t at[2] = {0, 0}, distance = SIZE_MAX;

    for (size_t i = 0; i < book->unit_count; i++) {
        const uint32_t unit = book->order[i];
        const unsigned side = draft->place[unit].tier == OV_TIER_RESIDENT;
        const size_t wanted = side ? resident : streamed;
        if (ov_plan_exchangeable(book, draft, unit) && draft->place[unit].pages == sizes->item[wanted].pages &&
            book->loads[unit] == sizes->item[wanted].loads) {
            last[side] = unit;
            at[side] = i;
            if (last[!side] != UINT32_MAX && i - at[!side] < distance) {
                distance = i - at[!side];
                best[0] = last[0];
                best[1] = last[1];
            }
        }
    }
    ov_plan_exchange(book, draft, best[0], best[1], OV_PLAN_FITTING);
}

void ov_plan_use_last_pages(struct ov_plan_book *book, struct ov_plan_draft *draft)
{
    struct sizes sizes;

    for (unsigned round = 0; round < EXCHANGES && draft->room_pages > 0; round++) {
        size_t streamed = 0, resident = 0, gain = 0;
        if (!count_sizes(book, draft, &sizes)) {
            return;
        }
        for (size_t s = 0; s < sizes.count; s++) {
            for (size_t r = 0; r < sizes.count; r++) {
                const size_t more =
                    sizes.item[s].pages > sizes.item[r].pages ? sizes.item[s].pages - sizes.item[r].pages : 0;
                if (sizes.item[s].streamed > 0 && sizes.item[r].resident > 0 && more > gain &&
                    more <= draft->room_pages && sizes.item[s].loads >= sizes.item[r].loads) {
                    gain = more;
                    streamed = s;
                    resident = r;
                }
            }
        }
        if (gain == 0) {
            return;
        }
        exchange_sizes(book, draft, &sizes, streamed, resident);
    }
}
