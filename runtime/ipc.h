/*
 * ipc.h - memory of the arena that is handed to other processes (cuIpcGetMemHandle and its kin).
 *
 * The driver makes no IPC handles for mapped memory. So an allocation that a handle is asked for gets other memory
 * behind it, once: device memory that can be exported as a file descriptor (OV_SHARED, ipc_share.c). It never moves
 * again. The handle that the program gets is a *ticket* of ours. A process that opens it, and runs overshot too,
 * connects to the owner over a socket, gets the descriptor, and maps the same memory. In a process without overshot the
 * driver refuses the ticket like any other bytes that are no handle.
 *
 * Owner: a service (service.h), started by the first ticket, answers on a socket. What is offered ends with the
 * allocation; who has opened it keeps the memory, as the driver keeps it.
 *
 * Opener: a mapping is kept by ticket and context, with a count: opening again gives the same address. It is foreign
 * memory to the ledger, and costs nothing: it is the owner's.
 *
 * Locks: the offers and the openings have one each, of their own. Openings' lock > engine.lock; offers' is a leaf.
 */
#ifndef OV_IPC_H
#define OV_IPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver.h"

#define OV_IPC_MAGIC "OVRSHOT"

/* Fits into CUipcMemHandle. */
struct ov_ticket {
    char magic[8];
    uint64_t service;        /* names the socket */
    unsigned char token[16]; /* names the memory; nobody can guess it */
    uint64_t bytes;          /* of the allocation */
    uint64_t mapped_bytes;   /* of its memory: whole pages */
};

/* ---- owner (ipc_serve.c) */

/* Starts the service if need be; false: it cannot be, and a line has said why. */
bool ov_ipc_serve(void);
/* Makes a ticket for the memory behind `file`, which is kept until it is withdrawn. */
bool ov_ipc_offer(int file, size_t bytes, size_t mapped_bytes, struct ov_ticket *ticket);
void ov_ipc_withdraw(const struct ov_ticket *ticket);
/* Whether the ticket is of this process. */
bool ov_ipc_is_own(const struct ov_ticket *ticket);
/* In the child of a fork; at exit. */
void ov_ipc_forked(void);
void ov_ipc_exit(void);

/* ---- the way between (ipc_path.c) */

/* The name of a service (service.h); OV_SERVICE_NAME_BYTES. */
void ov_ipc_name(uint64_t service, char *name);
/* Asks the owner for the memory's descriptor; -1: it does not answer, or does not know the ticket. */
int ov_ipc_fetch(const struct ov_ticket *ticket);

/* ---- opener (ipc_open.c) */

/* The allocation that an address of an opened ticket belongs to. */
bool ov_ipc_opened(CUdeviceptr address, CUdeviceptr *base, size_t *bytes);
/* A context goes away, NULL: the device's primary one. With it current or gone. */
void ov_ipc_context_closing(CUcontext context, CUdevice device);

#endif
