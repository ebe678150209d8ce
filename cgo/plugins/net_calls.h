/* Calls of a network plugin of any version, as package plugins (Go) makes them. Results are returned by value: a
 * plugin may call back into Go (its log), which may move the stack of the caller. Objects of a plugin are integers: Go
 * ends the program if it finds a pointer that points nowhere. */
#ifndef LP_PLUGINS_NET_CALLS_H
#define LP_PLUGINS_NET_CALLS_H

#include "net.h"

/* A plugin and its context for a communicator. */
struct lpn { const struct net_plugin *plugin; int version; uintptr_t context; };

/* rc is an ncclResult_t. object is the object that the call made, or 0. size and done belong to lpn_test. */
struct lpn_result { int rc, done, size; uintptr_t object; };

/* lpn_init returns the context; before version 11 the caller calls it once per process. */
struct lpn_result lpn_init(struct lpn n, uint64_t comm);
struct lpn_result lpn_devices(struct lpn n); /* size: their number */
/* memory_kinds has none of devices if the plugin cannot flush. */
struct lpn_device { int rc; const char *name; int memory_kinds, flush; int64_t max_bytes; int rail, plane; };
struct lpn_device lpn_device(struct lpn n, int device);
/* The caller owns handle, which stays where it is until the connection exists. */
struct lpn_result lpn_listen(struct lpn n, int device, void *handle);
struct lpn_result lpn_connect(struct lpn n, int device, void *handle);
struct lpn_result lpn_accept(struct lpn n, uintptr_t listener);
/* type is a kind of memory. */
struct lpn_result lpn_register(struct lpn n, uintptr_t conn, void *at, size_t size, int type);
struct lpn_result lpn_register_dmabuf(struct lpn n, uintptr_t conn, void *at, size_t size, uint64_t offset, int fd);
int lpn_deregister(struct lpn n, uintptr_t conn, uintptr_t memory);
struct lpn_result lpn_isend(struct lpn n, uintptr_t conn, void *at, size_t size, uintptr_t memory);
struct lpn_result lpn_irecv(struct lpn n, uintptr_t conn, void *at, size_t size, uintptr_t memory);
struct lpn_result lpn_iflush(struct lpn n, uintptr_t conn, void *at, int size, uintptr_t memory);
struct lpn_result lpn_test(struct lpn n, uintptr_t request);
enum { LPN_SEND, LPN_RECV, LPN_LISTEN };
int lpn_close(struct lpn n, int kind, uintptr_t object);
int lpn_finalize(struct lpn n);

#endif
