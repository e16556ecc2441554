/*
 * move.h - pages change what stands behind them; their bytes stay.
 *
 * From the device to the host, much at a time, in three overlapping steps: threads touch fresh memory (populate.h), the
 * caller makes it known to the driver (pin.h), the device copies. What is to be streamed gets pinned masters, what is
 * to be read in place mapped ones (masters.h). Room is asked for before anything moves; what has none stays where it
 * is.
 *
 * All functions need an exclusive section of the engine. Device memory is given back before other is taken, so the
 * budget holds at every moment.
 */
#ifndef OV_MOVE_H
#define OV_MOVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"

struct ov_engine;

/* Every chunk of device memory that holds a page which shall not stay (want[], propose.h) goes to the host. Pages that
 * shall be host-mapped are then; those that shall be streamed have masters and nothing behind them; other pages of such
 * a chunk are back on the device. A chunk for which there is no host memory stays as it was. */
void ov_move_out(struct ov_engine *engine, const uint8_t *want);
/* One stretch of whole chunks to the host, host-mapped. On failure it stays on the device. */
CUresult ov_move_to_host(struct ov_engine *engine, uint32_t first, uint32_t pages);
/* Pages with masters, host-mapped or with nothing behind them, to the device. The ledger may refuse: then they are as
 * before. Whatever else fails, they are host-mapped if that can be. */
CUresult ov_move_to_device(struct ov_engine *engine, uint32_t first, uint32_t pages);
/* Pages with masters and nothing behind them become host-mapped. */
CUresult ov_move_home(struct ov_engine *engine, uint32_t first, uint32_t pages);

#endif
