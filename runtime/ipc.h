/*
 * ipc.h - memory of the arena that is handed to other processes (cuIpcGetMemHandle and its kin).
 *
 * The driver makes no IPC handles for mapped memory. So an allocation that a handle is asked for gets other memory
 * behind it, once: device memory that can be exported as a file descriptor (OV_SHARED, ipc_share.c). It never moves
 * again. The handle that the program gets is a *ticket* of ours. A process that opens it, and runs overshot too,
 * connects to the owner over a socket, gets the descriptor, and maps the same memory. In a process without overshot the
 * driver refuses the ticket like any other bytes that are no handle.
 *
 * Owner: a service thread, started by the first ticket, answers on a socket in a folder that only the user can enter.
 * It makes no CUDA call, so it is harmless at exit. Both sides check that the other is of the same user, and wait a few
 * seconds at most. A forked child has no part in it. What is offered ends with the allocation; who has opened it keeps
 * the memory, as the driver keeps it.
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

enum { OV_IPC_PATH_BYTES = 108 };

/* The n-th folder where services may be; with `create`, made if it is not there. False: there is no such folder, or it
 * is not the user's alone. The first that can be created is where ours is. */
bool ov_ipc_folder(unsigned n, bool create, char *path);
enum { OV_IPC_FOLDERS = 3 };
/* The name of a service's socket in the folder; false if it is too long. */
bool ov_ipc_socket_path(const char *folder, uint64_t service, char *path);
/* Whether the other end of a connection is of the same user; sets the time limits of the socket. */
bool ov_ipc_trust(int socket);
/* Asks the owner for the memory's descriptor; -1: it does not answer, or does not know the ticket. */
int ov_ipc_fetch(const struct ov_ticket *ticket);

/* ---- opener (ipc_open.c) */

/* The allocation that an address of an opened ticket belongs to. */
bool ov_ipc_opened(CUdeviceptr address, CUdeviceptr *base, size_t *bytes);
/* A context goes away, NULL: the device's primary one. With it current or gone. */
void ov_ipc_context_closing(CUcontext context, CUdevice device);

#endif
