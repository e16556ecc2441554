/* ipc_peer.h - the other process of t_ipc: opens what it is handed, and says by its exit status what it found. */
#ifndef IPC_PEER_H
#define IPC_PEER_H

/* ROLE HANDLE BYTES DIGEST, as t_ipc starts it; each role says which of them it looks at. */
void ipc_peer(char **arguments);

#endif
