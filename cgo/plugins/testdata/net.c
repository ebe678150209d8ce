/* A network plugin for tests, over Unix sockets, of the version VERSION. It checks the calls that it gets, and fails as
 * the variable LIGHTPATH_TEST_NET says: words separated by spaces.
 *
 *   late=N           a request becomes complete at the N-th test after its bytes have moved
 *   reorder          a request becomes complete after the request behind it, or late
 *   refuse=N         connect makes no connection N times; every third isend and irecv makes no request
 *   multi            receives can be joined: eight with one request
 *   count=N          N devices (default 2); limit=N: messages of at most N bytes
 *   size=N           test says that a message has N bytes; gpusize=N: that a GPU has received N bytes
 *   nohost           no host memory
 *   gpu=N            kinds of memory of GPUs: 2 by address, 4 by dma-buf, 6 both
 *   flush            every GPU needs flushes
 *   hide             bytes that a GPU receives are in its memory only after a flush
 *   FUNCTION=N       the function fails after N calls, with the result code=N (default 3)
 *
 * A wrong call returns 4. NO_FLUSH: the plugin cannot flush. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#ifndef NO_FLUSH
#define NO_FLUSH 0
#endif
#include "net.h"
#include "regions.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { OK, SYSTEM = 2, INTERNAL = 3, WRONG = 4, REMOTE = 6, REQUESTS = 8, MULTI = 8 };

struct conn;
struct request {
	struct conn *of;
	char *at, *hides; /* hides: where the bytes at `at` go when they are flushed */
	uint64_t size, length, moved; /* length: of the message; moved counts its prefix */
	int used, tests, done, device; /* device: in memory of a GPU */
	uint64_t number;
};

struct conn {
	int fd, sends;
	atomic_int busy;
	struct regions regions;
	struct request requests[REQUESTS], hidden; /* hidden: what has arrived and waits for a flush */
	uint64_t posted, next; /* requests posted, and the first whose bytes have not moved */
};

struct listener { int fd; };

struct handle { struct sockaddr_un at; socklen_t size; int stage; }; /* stage counts calls of connect */

static plugin_log logger;
static atomic_int starts;

/* What the variable said when it was last read. An old text is never freed: another thread may be reading it. */
static _Atomic(char *) options;

/* read_options reads the variable as the caller opens the plugin: at other times a test may be setting variables. */
static void read_options(void)
{
	const char *all = getenv("LIGHTPATH_TEST_NET");
	atomic_store(&options, strdup(all ? all : ""));
}

/* option returns the number after a word, 0 if there is none, or missing if the word is missing. */
static long option(const char *word, long missing)
{
	size_t n = strlen(word);
	for (const char *at = atomic_load(&options); at && *at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL)
		if (strncmp(at, word, n) == 0 && (at[n] == '=' || at[n] == ' ' || !at[n]))
			return at[n] == '=' ? atol(at + n + 1) : 0;
	return missing;
}

static int fails(const char *function, atomic_int *calls)
{
	long after = option(function, -1);
	return after >= 0 && atomic_fetch_add(calls, 1) >= after ? (int)option("code", INTERNAL) : OK;
}

#define FAIL(function) \
	do { \
		static atomic_int calls; \
		int rc_ = fails(function, &calls); \
		if (rc_) { \
			logger(PLUGIN_WARN, 0, __FILE__, __LINE__, "%s fails as asked", function); \
			return rc_; \
		} \
	} while (0)

static int wrong(const char *why)
{
	logger(PLUGIN_WARN, 0, __FILE__, __LINE__, "wrong call: %s", why);
	return WRONG;
}

static int start(plugin_log log)
{
	logger = log;
	read_options();
	FAIL("init");
	logger(PLUGIN_INFO, 0, __FILE__, __LINE__, "test plugin, version %d", VERSION);
	if (atomic_fetch_add(&starts, 1) && VERSION < 11)
		return wrong("a second init");
	return OK;
}

static int devices(int *count)
{
	read_options();
	FAIL("devices");
	*count = (int)option("count", 2);
	return OK;
}

static int properties(int device, void *properties)
{
	static char names[16][8];
	FAIL("getProperties");
	struct net_properties_head *head = properties;
	snprintf(names[device], sizeof *names, "unix%d", device);
	head->name = names[device];
	head->memory_kinds = (option("nohost", -1) < 0 ? NET_HOST_MEMORY : NET_DEVICE_MEMORY) | (int)option("gpu", 0);
	if (VERSION >= 12) {
		struct net_properties_v12 *p = properties;
		p->max_bytes = option("limit", 0);
		p->flush = option("flush", -1) >= 0;
		p->rail = -1;
		p->plane = (int16_t)device;
	} else if (VERSION >= 9) {
		struct net_properties_v9 *p = properties;
		p->max_bytes = option("limit", 0);
		p->flush = option("flush", -1) >= 0;
		p->max_receives = option("multi", -1) < 0 ? 1 : MULTI;
	}
	return OK;
}

static int listen_at(int device, void *handle, void **listener)
{
	struct handle *h = handle;
	_Static_assert(sizeof *h <= NET_HANDLE, "handle");
	FAIL("listen");
	h->at.sun_family = AF_UNIX;
	h->size = sizeof h->at;
	struct listener *l = calloc(1, sizeof *l);
	l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (device < 0 || bind(l->fd, (struct sockaddr *)&h->at, sizeof h->at.sun_family) || listen(l->fd, 1) ||
	    getsockname(l->fd, (struct sockaddr *)&h->at, &h->size))
		return SYSTEM;
	*listener = l;
	return OK;
}

static struct conn *new_conn(int fd, int sends)
{
	struct conn *c = calloc(1, sizeof *c);
	int size = 256 << 10;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
	c->fd = fd;
	c->sends = sends;
	return c;
}

static int connect_to(int device, void *handle, void **conn)
{
	struct handle *h = handle;
	FAIL("connect");
	*conn = NULL;
	if (device < 0)
		return wrong("device");
	if (h->stage++ < option("refuse", 0))
		return OK;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (connect(fd, (struct sockaddr *)&h->at, h->size)) {
		close(fd);
		return errno == EAGAIN ? OK : REMOTE;
	}
	*conn = new_conn(fd, 1);
	return OK;
}

static int accept_from(void *listener, void **conn)
{
	FAIL("accept");
	*conn = NULL;
	int fd = accept4(((struct listener *)listener)->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd >= 0)
		*conn = new_conn(fd, 0);
	return fd >= 0 || errno == EAGAIN ? OK : SYSTEM;
}

/* Two threads in one connection at a time are a wrong call. */
static int enter(struct conn *c) { return atomic_exchange(&c->busy, 1) ? wrong("two threads") : OK; }
static void leave(struct conn *c) { atomic_store(&c->busy, 0); }

static int register_memory(void *conn, void *at, size_t size, int type, void **memory)
{
	struct conn *c = conn;
	if (type == NET_HOST_MEMORY) {
		FAIL("regMr");
		return add_region(&c->regions, at, size, type, at, 0, memory) ? OK : wrong("too many regions");
	}
	FAIL("regMrGPU");
	if (type != NET_DEVICE_MEMORY || !(option("gpu", 0) & NET_DEVICE_MEMORY))
		return wrong("regMr");
	return add_device(&c->regions, at, size, memory) ? OK : SYSTEM;
}

static int register_dmabuf(void *conn, void *at, size_t size, int type, uint64_t offset, int fd, void **memory)
{
	struct conn *c = conn;
	FAIL("regMrDmaBuf");
	if (type != NET_DEVICE_MEMORY || !(option("gpu", 0) & NET_DMABUF) || (uintptr_t)at % 4096 != offset % 4096)
		return wrong("regMrDmaBuf");
	return add_dmabuf(&c->regions, at, size, offset, fd, memory) ? OK : SYSTEM;
}

static int deregister_memory(void *conn, void *memory)
{
	FAIL("deregMr");
	return drop_region(&((struct conn *)conn)->regions, memory) ? OK : wrong("deregMr");
}

static int post(struct conn *c, int sends, void *at, size_t size, void *memory, void **request)
{
	struct request *r = &c->requests[c->posted % REQUESTS];
	static atomic_int calls;
	struct region *region = find_region(&c->regions, memory, at, size);
	if (c->sends != sends || !region || *request)
		return wrong(sends ? "isend" : "irecv");
	if (r->used)
		return wrong("too many requests");
	if (option("refuse", -1) >= 0 && atomic_fetch_add(&calls, 1) % 3 == 0)
		return OK;
	char *to = region->to + ((char *)at - region->at);
	*r = (struct request){.of = c, .at = to, .size = size, .length = size, .used = 1, .number = c->posted++};
	r->device = region->type != NET_HOST_MEMORY;
	if (!sends && r->device && option("hide", -1) >= 0) {
		r->hides = r->at;
		r->at = malloc(size);
	}
	*request = r;
	return OK;
}

/* move moves bytes of the first unfinished request. It returns 1 when all bytes have moved, 0 if it would block. */
static int move(struct conn *c, struct request *r)
{
	enum { PREFIX = sizeof r->length };
	while (r->moved < PREFIX + r->length || r->moved < PREFIX) {
		int prefix = r->moved < PREFIX;
		char *at = prefix ? (char *)&r->length + r->moved : r->at + r->moved - PREFIX;
		size_t n = prefix ? PREFIX - r->moved : r->length + PREFIX - r->moved;
		ssize_t m = c->sends ? send(c->fd, at, n, MSG_NOSIGNAL) : recv(c->fd, at, n, 0);
		if (m < 0 && errno == EAGAIN)
			return 0;
		if (m <= 0)
			return -REMOTE;
		r->moved += m;
		if (!c->sends && r->moved == PREFIX && r->length > r->size)
			return -INTERNAL;
	}
	return 1;
}

/* The request of a flush is complete when the bytes are in the device's memory. */
static int iflush(void *conn, int n, void **at, int *sizes, void **memory, void **request)
{
	struct conn *c = conn;
	FAIL("iflush");
	struct region *r = n == 1 ? find_region(&c->regions, memory[0], at[0], sizes[0]) : NULL;
	if (!r || r->type == NET_HOST_MEMORY || c->sends || *request)
		return wrong("iflush");
	if (option("hide", -1) < 0)
		return OK;
	if (!c->hidden.hides || c->hidden.hides != r->to + ((char *)at[0] - r->at) || c->hidden.size != (size_t)sizes[0])
		return wrong("iflush of other bytes");
	c->hidden.used = 1;
	*request = &c->hidden;
	return OK;
}

static int test(void *request, int *done, int *sizes)
{
	struct request *r = request;
	FAIL("test");
	if (!r->used)
		return wrong("test of no request");
	struct conn *c = r->of;
	if (enter(c))
		return WRONG;
	int rc = OK, moved = 1;
	while (moved == 1 && c->next < c->posted) {
		moved = move(c, &c->requests[c->next % REQUESTS]);
		if (moved == 1)
			c->next++;
	}
	*done = 0;
	if (r == &c->hidden) {
		*done = r->tests++ >= 2;
		if (*done) {
			memcpy(r->hides, r->at, r->size);
			free(r->at);
			*r = (struct request){.of = c};
		}
	} else if (r->number < c->next) {
		long late = option("late", 0);
		r->tests++;
		if (option("reorder", -1) >= 0 && r->number + 1 >= c->next)
			late = 5; /* the request behind comes first, or is not there yet */
		if (r->tests > late) {
			*done = 1;
			sizes[0] = (int)option(r->device ? "gpusize" : "size", (long)r->length);
			r->used = 0;
			if (r->hides) {
				c->hidden = *r;
				c->hidden.tests = 0;
			}
		}
	} else if (moved < 0) {
		rc = -moved;
	}
	leave(c);
	return rc;
}

static int close_conn(void *conn, int sends)
{
	struct conn *c = conn;
	if (c->sends != sends)
		return wrong("close");
	if (c->regions.used)
		return wrong("close with registered memory");
	int used = 0;
	for (int i = 0; i < REQUESTS; i++)
		used += c->requests[i].used;
	if (used)
		logger(PLUGIN_WARN, 0, __FILE__, __LINE__, "closed with %d requests", used);
	close(c->fd);
	free(c);
	return OK;
}

static int close_send(void *conn)
{
	FAIL("closeSend");
	return close_conn(conn, 1);
}

static int close_recv(void *conn)
{
	FAIL("closeRecv");
	return close_conn(conn, 0);
}

static int close_listen(void *listener)
{
	FAIL("closeListen");
	close(((struct listener *)listener)->fd);
	free(listener);
	return OK;
}

/* The forms of the functions of this version. */
#if VERSION >= 11
static atomic_int contexts;

static int init(void **context, uint64_t comm, struct net_config *config, plugin_log log, net_event event)
{
	(void)comm;
	int rc = start(log);
	*context = &contexts;
	atomic_fetch_add(&contexts, 1);
	return config->traffic_class == -1 && event ? rc : WRONG;
}
static int finalize(void *context)
{
	FAIL("finalize");
	return context == &contexts && atomic_fetch_sub(&contexts, 1) > 0 ? OK : wrong("finalize");
}
static int listen_v(void *context, int device, void *handle, void **listener)
{
	return context == &contexts ? listen_at(device, handle, listener) : WRONG;
}
#else
#if VERSION == 10
static int init(plugin_log log, net_event event) { return event ? start(log) : WRONG; }
#else
static int init(plugin_log log) { return start(log); }
#endif
static int listen_v(int device, void *handle, void **listener) { return listen_at(device, handle, listener); }
#endif

#if VERSION >= 11
static int connect_v(void *context, int device, void *handle, void **conn, void **offload)
{
	return context == &contexts && !*offload ? connect_to(device, handle, conn) : WRONG;
}
#elif VERSION == 10
static int connect_v(int device, struct net_config *config, void *handle, void **conn, void **offload)
{
	return config->traffic_class == -1 && !*offload ? connect_to(device, handle, conn) : WRONG;
}
#elif VERSION >= 7
static int connect_v(int device, void *handle, void **conn, void **offload)
{
	return *offload ? WRONG : connect_to(device, handle, conn);
}
#else
static int connect_v(int device, void *handle, void **conn) { return connect_to(device, handle, conn); }
#endif

#if VERSION >= 7
static int accept_v(void *listener, void **conn, void **offload)
{
	return *offload ? WRONG : accept_from(listener, conn);
}
#else
static int accept_v(void *listener, void **conn) { return accept_from(listener, conn); }
#endif

#if VERSION >= 8
typedef size_t register_size;
#else
typedef int register_size;
#endif
static int register_v(void *conn, void *at, register_size size, int type, void **memory)
{
	return register_memory(conn, at, size, type, memory);
}

#if VERSION >= 9
typedef size_t message_size;
#else
typedef int message_size;
#endif
#if VERSION >= 10
#define PARENT(type) , type parent
#else
#define PARENT(type)
#endif
static int isend(void *conn, void *at, message_size size, int tag, void *memory PARENT(void *), void **request)
{
	FAIL("isend");
	#if VERSION >= 10
	if (parent)
		return wrong("an event");
#endif
	return tag ? wrong("tag") : post(conn, 1, at, size, memory, request);
}
static int irecv(void *conn, int n, void **at, message_size *sizes, int *tags, void **memory PARENT(void **),
		 void **request)
{
	FAIL("irecv");
	if (n != 1 || tags[0])
		return wrong("a joined receive");
#if VERSION >= 10
	if (parent[0])
		return wrong("an event");
#endif
	return post(conn, 0, at[0], sizes[0], memory[0], request);
}

#define JOIN(a, b) a##b
#define SYMBOL(version) JOIN(ncclNetPlugin_v, version)
const struct net_plugin SYMBOL(VERSION) = {
	.name = "Unix",
	.init = {(void *)init},
	.devices = devices,
	.properties = properties,
	.listen = {(void *)listen_v},
	.connect = {(void *)connect_v},
	.accept = {(void *)accept_v},
	.register_memory = {(void *)register_v},
	.register_dmabuf = register_dmabuf,
	.deregister_memory = deregister_memory,
	.isend = {(void *)isend},
	.irecv = {(void *)irecv},
	.iflush = NO_FLUSH ? NULL : iflush,
	.test = test,
	.close_send = close_send,
	.close_recv = close_recv,
	.close_listen = close_listen,
#if VERSION >= 11
	.finalize = finalize,
#endif
};
