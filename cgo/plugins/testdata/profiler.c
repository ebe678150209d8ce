/* A profiler plugin for tests, of the version VERSION. It writes a line for each call into the file that
 * LIGHTPATH_TEST_PROFILE names. An event that is stopped twice, or that is not stopped at the end, is a line, too. */
#include "profiler.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct event {
	int rank;
	const char *kind;
	int open;
	int sends, channel, transfers, steps; /* of a proxy: announced transfers, and its step events */
	char states[256];                     /* recorded so far */
	size_t bytes;                         /* of the last state */
	struct event *parent;
};
struct context { int rank, events; };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static FILE *out;
static struct context contexts[16];
static int made, *mask_of_all;

static const char *kind_name(uint64_t kind)
{
	switch (VERSION < 5 ? kind & 0xff : kind) {
	case PROFILE_GROUP: return "group";
	case PROFILE_COLLECTIVE: return "collective";
	case PROFILE_MESSAGE: return "message";
	case PROFILE_PROXY: return "proxy";
	case PROFILE_STEP: return "step";
	case PROFILE_CONTROL: return "control";
	case PROFILE_KERNEL: return "kernel";
	case PROFILE_GROUP_API: return "group-api";
	case PROFILE_COLLECTIVE_API: return "collective-api";
	case PROFILE_MESSAGE_API: return "message-api";
	}
	return "unknown";
}

static int begin(void **context, int *mask, const char *name, int nodes, int ranks, int rank)
{
	if (getenv("LIGHTPATH_TEST_PROFILE_FAILS"))
		return 3;
	pthread_mutex_lock(&mutex);
	if (!out)
		out = fopen(getenv("LIGHTPATH_TEST_PROFILE"), "a");
	struct context *c = &contexts[made++ % 16];
	*c = (struct context){.rank = rank};
	fprintf(out, "init %s nodes %d ranks %d rank %d\n", name, nodes, ranks, rank);
	fflush(out);
	*context = c;
	if (made == 1) { /* like NVIDIA's example */
		mask_of_all = mask;
		*mask = getenv("LIGHTPATH_TEST_PROFILE_MASK") ? atoi(getenv("LIGHTPATH_TEST_PROFILE_MASK")) : 0xffff;
	}
	pthread_mutex_unlock(&mutex);
	return 0;
}

#if VERSION >= 5
static int init(void **context, uint64_t comm, int *mask, const char *name, int nodes, int ranks, int rank,
		plugin_log log)
{
	log(PLUGIN_INFO, 0, __FILE__, __LINE__, "profiler of %llx", (unsigned long long)comm);
	return begin(context, mask, name, nodes, ranks, rank);
}
#elif VERSION == 4
static int init(void **context, int *mask, const char *name, uint64_t comm, int nodes, int ranks, int rank,
		plugin_log log)
{
	log(PLUGIN_INFO, 0, __FILE__, __LINE__, "profiler of %llx", (unsigned long long)comm);
	return begin(context, mask, name, nodes, ranks, rank);
}
#else
static int init(void **context, int *mask) { return begin(context, mask, "-", -1, -1, -1); }
#endif

static int start(void *context, void **event, struct profile_event *e)
{
	const char *refused = getenv("LIGHTPATH_TEST_PROFILE_REFUSES");
	struct event *of = calloc(1, sizeof *of), *parent = e->parent;
	*of = (struct event){.rank = e->rank, .kind = kind_name(e->kind), .open = 1, .parent = parent};
	if (refused && strcmp(refused, of->kind) == 0) {
		*event = of; /* an event beside an error is none */
		return 3;
	}
	pthread_mutex_lock(&mutex);
	((struct context *)context)->events++;
	if (getenv("LIGHTPATH_TEST_PROFILE_LATER"))
		*mask_of_all = atoi(getenv("LIGHTPATH_TEST_PROFILE_LATER"));
	if (parent && !parent->open)
		fprintf(out, "wrong parent: %s has ended\n", parent->kind);
	fprintf(out, "rank %d: %s in %s", e->rank, of->kind, parent ? parent->kind : "nothing");
#if VERSION == 1
#define NAMES "%d %zu %d"
#define CHOICE "%d %d"
#else
#define NAMES "%s %zu %s"
#define CHOICE "%s %s"
#endif
#define CALL(c) fprintf(out, ": " NAMES " root %d", c.function, c.count, c.type, c.root)
#define HOW(c) fprintf(out, " seq %d by " CHOICE " on %d", (int)c.seq, c.algorithm, c.protocol, c.channels)
#define MESSAGE(c) fprintf(out, ": " NAMES " peer %d", c.function, c.count, c.type, c.peer)
	if (strcmp(of->kind, "collective") == 0) {
#if VERSION >= 4
		CALL(e->collective_v4), HOW(e->collective_v4);
#elif VERSION == 3
		CALL(e->collective_v3), HOW(e->collective_v3);
#elif VERSION == 2
		CALL(e->collective_v2), HOW(e->collective_v2);
		fprintf(out, ", %zu bytes", e->collective_v2.bytes);
#else
		CALL(e->collective_v1), HOW(e->collective_v1);
		fprintf(out, ", %zu bytes, op %u", e->collective_v1.bytes, e->collective_v1.op);
#endif
	} else if (strcmp(of->kind, "message") == 0) {
#if VERSION >= 4
		MESSAGE(e->message_v4);
#elif VERSION >= 2
		MESSAGE(e->message_v2);
#else
		MESSAGE(e->message_v1);
#endif
	} else if (strcmp(of->kind, "proxy") == 0) {
		of->sends = e->proxy.sends, of->channel = e->proxy.channel, of->transfers = e->proxy.steps;
		fprintf(out, ": %s plane %d peer %d transfers %d of %d bytes", of->sends ? "sends" : "receives", of->channel,
			e->proxy.peer, of->transfers, e->proxy.size);
		if (e->proxy.process != getpid())
			fprintf(out, " wrong process %d", e->proxy.process);
	} else if (strcmp(of->kind, "step") == 0) {
		fprintf(out, ": %s plane %d", parent->sends ? "sends" : "receives", parent->channel);
		if (e->step.step != parent->steps++)
			fprintf(out, " wrong number %d", e->step.step);
	} else if (strcmp(of->kind, "kernel") == 0 && VERSION >= 4) {
		fprintf(out, e->kernel.timer ? "" : " without a time");
	}
	fprintf(out, "\n");
	fflush(out);
	pthread_mutex_unlock(&mutex);
	*event = of;
	return 0;
}

static int stop(void *event)
{
	struct event *e = event;
	pthread_mutex_lock(&mutex);
	if (!e->open)
		fprintf(out, "stopped twice: %s\n", e->kind);
	e->open = 0;
	fprintf(out, "rank %d: end of %s", e->rank, e->kind);
	if (*e->states)
		fprintf(out, ":%s, %zu bytes", e->states, e->bytes);
	fprintf(out, "\n");
	fflush(out);
	pthread_mutex_unlock(&mutex);
	return 0; /* the event stays, so that a second stop is found */
}

static int state(void *event, int number, union profile_state *what)
{
	struct event *e = event;
	pthread_mutex_lock(&mutex);
	int kernel = strcmp(e->kind, "kernel") == 0;
	if (!e->open || (kernel && (number != KERNEL_STOP || !what->timer)))
		fprintf(out, "wrong state %d of %s\n", number, e->kind);
	if (!kernel) { /* its end tells the states */
		size_t used = strlen(e->states);
		snprintf(e->states + used, sizeof e->states - used, " %d", number);
		e->bytes = what->transfer.bytes;
	}
	pthread_mutex_unlock(&mutex);
	return 0;
}

static int finalize(void *context)
{
	(void)context;
	pthread_mutex_lock(&mutex);
	fprintf(out, "finalize\n");
	fflush(out);
	pthread_mutex_unlock(&mutex);
	return 0;
}

#define JOIN(a, b) a##b
#define SYMBOL(version) JOIN(ncclProfiler_v, version)
const struct profiler_plugin SYMBOL(VERSION) = {"test", {(void *)init}, start, stop, state, finalize};
