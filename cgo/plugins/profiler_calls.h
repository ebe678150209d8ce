/* Calls of a profiler plugin of any version, as package plugins (Go) makes them. Events are integers, 0 for none. */
#ifndef LP_PLUGINS_PROFILER_CALLS_H
#define LP_PLUGINS_PROFILER_CALLS_H

#include "profiler.h"
#include <stdbool.h>

/* A plugin for a rank of a communicator. mask: the events that the plugin wants, as an operation begins. */
struct lpp {
	const struct profiler_plugin *plugin;
	int version, mask, rank;
	uintptr_t context;
	const char *name;
	uint64_t comm;
};
/* lpp_init returns an ncclResult_t as rc, and the context. The plugin may keep mask and change it at any time. */
struct lpp_init { int rc; uintptr_t context; };
struct lpp_init lpp_init(struct lpp p, int *mask, int nodes, int ranks);

/* A call: a collective, or a message if message is set; root is its peer then. Version 1 has numbers, not names. */
struct lpp_call {
	bool message;
	int root;
	uint64_t seq, count, bytes;
	const char *function, *type, *algorithm;
	int function_number, type_number, op;
};
/* The events of a group of calls, and of a call: the call of the interface, its work, and its one kernel. */
struct lpp_group { uintptr_t api, group; };
struct lpp_events { uintptr_t api, work, kernel; };

/* The sends of a call on a plane, or its receives. peer is that of the first transfer, size that of the largest. Go
 * sets the first line. */
struct lpp_proxy {
	int plane, sends, peer, transfers, size;
	int begun, ended;
	uint64_t bytes; /* moved so far */
	uintptr_t event;
};

/* lpp_planes: does the plugin want to know what happens on planes in this operation? */
int lpp_planes(struct lpp p);

/* now is in nanoseconds. */
struct lpp_group lpp_open(struct lpp p);
struct lpp_events lpp_begin(struct lpp p, struct lpp_group g, struct lpp_call c, uint64_t now);
void lpp_end(struct lpp p, struct lpp_events e, uint64_t now);
void lpp_proxy_begin(struct lpp p, uintptr_t work, struct lpp_proxy *o);
void lpp_proxy_end(struct lpp p, struct lpp_proxy *o);
/* lpp_transfer_begin returns the event of a transfer. The end of the last one ends the proxy. */
uintptr_t lpp_transfer_begin(struct lpp p, struct lpp_proxy *o, uint64_t bytes);
void lpp_transfer_end(struct lpp p, struct lpp_proxy *o, uintptr_t step, uint64_t bytes);
/* lpp_hold_begin returns the event of a plane that waits for its circuits. */
uintptr_t lpp_hold_begin(struct lpp p);
void lpp_hold_end(struct lpp p, uintptr_t event);
/* lpp_stop stops an event, if there is one. */
void lpp_stop(struct lpp p, uintptr_t event);
void lpp_close(struct lpp p, struct lpp_group g);
void lpp_finalize(struct lpp p);

#endif
