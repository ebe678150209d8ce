/* The interface of NCCL's network plugins, versions 6 to 12: the parts that Lightpath uses, under names of its own.
 *
 * A plugin is a library with a variable ncclNetPlugin_vN. All versions have the same functions in the same order, and
 * later versions add some at the end. A union holds the forms of a function, each under the first version that has it.
 * Functions return an ncclResult_t. */
#ifndef LP_PLUGINS_NET_H
#define LP_PLUGINS_NET_H

#include "load.h"

enum { NET_OLDEST = 6, NET_NEWEST = 12, NET_HANDLE = 128 };

/* Kinds of memory. NET_DMABUF only says that register_dmabuf works: the memory is of the kind NET_DEVICE_MEMORY. */
enum { NET_HOST_MEMORY = 1, NET_DEVICE_MEMORY = 2, NET_DMABUF = 4 };

/* net_event is called about events of a request; parent is the handle that isend or irecv got. */
typedef int (*net_event)(void **event, int type, void *parent, int64_t plugin, void *data);

struct net_config { int traffic_class; }; /* -1: the plugin's default */

struct net_plugin {
	const char *name;
	union { /* before version 11: once per process */
		int (*v6)(plugin_log log);
		int (*v10)(plugin_log log, net_event event);
		int (*v11)(void **context, uint64_t comm, struct net_config *config, plugin_log log, net_event event);
	} init;
	int (*devices)(int *count);
	int (*properties)(int device, void *properties); /* struct net_properties_vN */
	union {
		int (*v6)(int device, void *handle, void **listener);
		int (*v11)(void *context, int device, void *handle, void **listener);
	} listen;
	union { /* sets *conn to NULL if the caller must call again, with the same handle, which the plugin may change */
		int (*v6)(int device, void *handle, void **conn);
		int (*v7)(int device, void *handle, void **conn, void **offload);
		int (*v10)(int device, struct net_config *config, void *handle, void **conn, void **offload);
		int (*v11)(void *context, int device, void *handle, void **conn, void **offload);
	} connect;
	union { /* sets *conn to NULL if the caller must call again */
		int (*v6)(void *listener, void **conn);
		int (*v7)(void *listener, void **conn, void **offload);
	} accept;
	union {
		int (*v6)(void *conn, void *at, int size, int type, void **memory);
		int (*v8)(void *conn, void *at, size_t size, int type, void **memory);
	} register_memory;
	int (*register_dmabuf)(void *conn, void *at, size_t size, int type, uint64_t offset, int fd, void **memory);
	int (*deregister_memory)(void *conn, void *memory);
	union { /* sets *request to NULL if the caller must call again */
		int (*v6)(void *conn, void *at, int size, int tag, void *memory, void **request);
		int (*v9)(void *conn, void *at, size_t size, int tag, void *memory, void **request);
		int (*v10)(void *conn, void *at, size_t size, int tag, void *memory, void *parent, void **request);
	} isend;
	union { /* n receives with one request; the same about *request */
		int (*v6)(void *conn, int n, void **at, int *sizes, int *tags, void **memory, void **request);
		int (*v9)(void *conn, int n, void **at, size_t *sizes, int *tags, void **memory, void **request);
		int (*v10)(void *conn, int n, void **at, size_t *sizes, int *tags, void **memory, void **parents,
			   void **request);
	} irecv;
	/* makes received bytes visible to the device; a request of NULL: they are */
	int (*iflush)(void *conn, int n, void **at, int *sizes, void **memory, void **request);
	int (*test)(void *request, int *done, int *sizes); /* sizes: one for each of the n receives */
	int (*close_send)(void *conn);
	int (*close_recv)(void *conn);
	int (*close_listen)(void *listener);
	/* since version 7 */
	void *device_memory, *consumed;
	/* since version 9 */
	void *make_virtual;
	/* since version 11 */
	int (*finalize)(void *context);
	void *set_attributes;
};

/* The properties of a device. The head is the same in all versions; Lightpath needs the rest since version 9. guid
 * identifies the chip, memory_kinds holds kinds of memory, flush is set if received bytes must always be flushed, speed
 * is in Mb/s, latency in microseconds. */
#define NET_PROPERTIES_HEAD char *name, *pci; uint64_t guid; int memory_kinds;
#define NET_PROPERTIES_V9(most) \
	NET_PROPERTIES_HEAD \
	int global_memory, flush, speed, port; \
	float latency; \
	int max_conns, max_receives, offload, offload_version; \
	struct { int count, devices[most]; } parts; \
	size_t max_bytes, max_collective_bytes; /* of a message */

struct net_properties_head { NET_PROPERTIES_HEAD };
struct net_properties_v9 { NET_PROPERTIES_V9(4) int max_requests; /* since version 11 */ };
struct net_properties_v12 {
	NET_PROPERTIES_V9(8)
	int max_requests;
	int16_t rail, plane; /* -1: not known */
};

/* Measured with NVIDIA's headers. */
_Static_assert(sizeof(struct net_plugin) == 22 * sizeof(void *), "net_plugin");
_Static_assert(offsetof(struct net_properties_v9, max_bytes) == 88, "version 9");
_Static_assert(offsetof(struct net_properties_v12, max_bytes) == 104, "version 12");
_Static_assert(offsetof(struct net_properties_v12, plane) == 126, "version 12");

#endif
