/* Calls of a profiler plugin of any version, as package plugins (Go) makes them. Events are integers, 0 for none. */
#ifndef LP_PLUGINS_PROFILER_CALLS_H
#define LP_PLUGINS_PROFILER_CALLS_H

#include "profiler.h"

/* A plugin for a rank of a communicator. mask: the events that the plugin wants. */
struct lpp {
	const struct profiler_plugin *plugin;
	int version, mask, rank;
	uintptr_t context;
	const char *name;
	uint64_t comm;
};
/* lpp_init returns an ncclResult_t as rc, and what it has set. */
struct lpp_init { int rc, mask; uintptr_t context; };
struct lpp_init lpp_init(struct lpp p, int nodes, int ranks);

/* A call: a collective, or a message if message is set; root is its peer then. */
struct lpp_call {
	int message, root;
	uint64_t seq, count, bytes;
	const char *function, *type, *algorithm;
};
/* The events of a group of calls, and of a call: the call of the interface, its work, and its one kernel. */
struct lpp_group { uintptr_t api, group; };
struct lpp_events { uintptr_t api, work, kernel; };

/* now is in nanoseconds. */
struct lpp_group lpp_open(struct lpp p);
struct lpp_events lpp_begin(struct lpp p, struct lpp_group g, struct lpp_call c, uint64_t now);
void lpp_end(struct lpp p, struct lpp_events e, uint64_t now);
void lpp_close(struct lpp p, struct lpp_group g);
void lpp_finalize(struct lpp p);

#endif
