/* Calls of a network plugin of any version. */
#include "load.h"
#include "net_calls.h"

#include <limits.h>
#include <string.h>

/* TAG goes with every message. A plugin compares it if it can join several receives. */
enum { TAG = 0, INVALID_USAGE = 5, MOST_RECEIVES = 32 };

/* no_event is for plugins that report events of their own. */
static int no_event(void **event, int type, void *parent, int64_t plugin, void *data)
{
	(void)event, (void)type, (void)parent, (void)plugin, (void)data;
	return 0;
}

static struct net_config config = {-1};

struct lpn_result lpn_init(struct lpn n, uint64_t comm)
{
	struct lpn_result r = {0};
	void *object = NULL;
	const struct net_plugin *p = n.plugin;
	if (n.version >= 11)
		r.rc = p->init.v11(&object, comm, &config, lp_plugin_log, no_event);
	else if (n.version == 10)
		r.rc = p->init.v10(lp_plugin_log, no_event);
	else
		r.rc = p->init.v6(lp_plugin_log);
	r.object = (uintptr_t)object;
	return r;
}

struct lpn_result lpn_devices(struct lpn n)
{
	struct lpn_result r = {0};
	r.rc = n.plugin->devices(&r.size);
	return r;
}

struct lpn_device lpn_device(struct lpn n, int device)
{
	struct lpn_device d = {.max_bytes = 1 << 30, .rail = -1, .plane = -1};
	union { /* as large as the properties of any version */
		struct net_properties_head head;
		struct net_properties_v9 v9;
		struct net_properties_v12 v12;
	} p;
	memset(&p, 0, sizeof p);
	d.rc = n.plugin->properties(device, &p);
	if (d.rc)
		return d;
	d.name = p.head.name ? p.head.name : "";
	d.memory_kinds = p.head.memory_kinds;
	if (n.plugin->register_dmabuf == NULL)
		d.memory_kinds &= ~NET_DMABUF;
	if (n.plugin->iflush == NULL)
		d.memory_kinds &= NET_HOST_MEMORY;
	d.flush = n.version >= 12 ? p.v12.flush : n.version >= 9 ? p.v9.flush : 0;
	size_t most = n.version >= 12 ? p.v12.max_bytes : n.version >= 9 ? p.v9.max_bytes : 0;
	if (most > 0 && most < (size_t)d.max_bytes)
		d.max_bytes = most;
	if (n.version >= 12) {
		d.rail = p.v12.rail;
		d.plane = p.v12.plane;
	}
	return d;
}

struct lpn_result lpn_listen(struct lpn n, int device, void *handle)
{
	struct lpn_result r = {0};
	void *object = NULL;
	const struct net_plugin *p = n.plugin;
	if (n.version >= 11)
		r.rc = p->listen.v11((void *)n.context, device, handle, &object);
	else
		r.rc = p->listen.v6(device, handle, &object);
	r.object = (uintptr_t)object;
	return r;
}

struct lpn_result lpn_connect(struct lpn n, int device, void *handle)
{
	struct lpn_result r = {0};
	void *object = NULL;
	const struct net_plugin *p = n.plugin;
	void *offload = NULL;
	if (n.version >= 11)
		r.rc = p->connect.v11((void *)n.context, device, handle, &object, &offload);
	else if (n.version == 10)
		r.rc = p->connect.v10(device, &config, handle, &object, &offload);
	else if (n.version >= 7)
		r.rc = p->connect.v7(device, handle, &object, &offload);
	else
		r.rc = p->connect.v6(device, handle, &object);
	r.object = (uintptr_t)object;
	return r;
}

struct lpn_result lpn_accept(struct lpn n, uintptr_t listener)
{
	struct lpn_result r = {0};
	void *object = NULL;
	const struct net_plugin *p = n.plugin;
	void *offload = NULL;
	r.rc = n.version >= 7 ? p->accept.v7((void *)listener, &object, &offload) : p->accept.v6((void *)listener, &object);
	r.object = (uintptr_t)object;
	return r;
}

struct lpn_result lpn_register(struct lpn n, uintptr_t conn, void *at, size_t size, int type)
{
	struct lpn_result r = {0};
	void *object = NULL;
	const struct net_plugin *p = n.plugin;
	if (n.version >= 8)
		r.rc = p->register_memory.v8((void *)conn, at, size, type, &object);
	else if (size <= INT_MAX)
		r.rc = p->register_memory.v6((void *)conn, at, (int)size, type, &object);
	else
		r.rc = INVALID_USAGE;
	r.object = (uintptr_t)object;
	return r;
}

struct lpn_result lpn_register_dmabuf(struct lpn n, uintptr_t conn, void *at, size_t size, uint64_t offset, int fd)
{
	struct lpn_result r = {0};
	void *object = NULL;
	r.rc = n.plugin->register_dmabuf((void *)conn, at, size, NET_DEVICE_MEMORY, offset, fd, &object);
	r.object = (uintptr_t)object;
	return r;
}

int lpn_deregister(struct lpn n, uintptr_t conn, uintptr_t memory)
{
	return n.plugin->deregister_memory((void *)conn, (void *)memory);
}

struct lpn_result lpn_isend(struct lpn n, uintptr_t conn, void *at, size_t size, uintptr_t memory)
{
	struct lpn_result r = {0};
	void *object = NULL;
	const struct net_plugin *p = n.plugin;
	if (n.version >= 10)
		r.rc = p->isend.v10((void *)conn, at, size, TAG, (void *)memory, NULL, &object);
	else if (n.version == 9)
		r.rc = p->isend.v9((void *)conn, at, size, TAG, (void *)memory, &object);
	else
		r.rc = p->isend.v6((void *)conn, at, (int)size, TAG, (void *)memory, &object);
	r.object = (uintptr_t)object;
	return r;
}

struct lpn_result lpn_irecv(struct lpn n, uintptr_t conn, void *at, size_t size, uintptr_t memory)
{
	struct lpn_result r = {0};
	void *object = NULL;
	const struct net_plugin *p = n.plugin;
	int tag = TAG, small = (int)size;
	void *parent = NULL, *mem = (void *)memory;
	if (n.version >= 10)
		r.rc = p->irecv.v10((void *)conn, 1, &at, &size, &tag, &mem, &parent, &object);
	else if (n.version == 9)
		r.rc = p->irecv.v9((void *)conn, 1, &at, &size, &tag, &mem, &object);
	else
		r.rc = p->irecv.v6((void *)conn, 1, &at, &small, &tag, &mem, &object);
	r.object = (uintptr_t)object;
	return r;
}

struct lpn_result lpn_iflush(struct lpn n, uintptr_t conn, void *at, int size, uintptr_t memory)
{
	struct lpn_result r = {0};
	void *object = NULL, *mem = (void *)memory;
	r.rc = n.plugin->iflush((void *)conn, 1, &at, &size, &mem, &object);
	r.object = (uintptr_t)object;
	return r;
}

struct lpn_result lpn_test(struct lpn n, uintptr_t request)
{
	struct lpn_result r = {0};
	int sizes[MOST_RECEIVES] = {0};
	r.rc = n.plugin->test((void *)request, &r.done, sizes);
	r.size = sizes[0];
	return r;
}

int lpn_close(struct lpn n, int kind, uintptr_t object)
{
	const struct net_plugin *p = n.plugin;
	return (kind == LPN_SEND ? p->close_send : kind == LPN_RECV ? p->close_recv : p->close_listen)((void *)object);
}

int lpn_finalize(struct lpn n)
{
	return n.version >= 11 && n.plugin->finalize ? n.plugin->finalize((void *)n.context) : 0;
}
