/*
 * stack_wait.h: waiting for a context while other threads capture.
 *
 * A driver refuses cuCtxSynchronize() as long as any stream of the context is captured, by whatever thread and in
 * whatever mode, and the capture is broken. So a capture and such a wait exclude each other; captures do not. Any
 * thread.
 */
#ifndef STACK_WAIT_H
#define STACK_WAIT_H

/* Waits for the current context. */
void stack_wait_for_context(void);
void stack_capture_enter(void);
void stack_capture_leave(void);

#endif
