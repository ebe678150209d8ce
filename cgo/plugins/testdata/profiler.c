/* A profiler plugin for tests, of the version VERSION. It writes a line for each call into the file that
 * LIGHTPATH_TEST_PROFILE names. An event that is stopped twice, or that is not stopped at the end, is a line, too. */
#include "profiler.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct event { int rank; const char *kind; int open; };
struct context { int rank, events; };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static FILE *out;
static struct context contexts[16];
static int made;

static const char *kind_name(uint64_t kind)
{
	switch (VERSION < 5 ? kind & 0xff : kind) {
	case PROFILE_GROUP: return "group";
	case PROFILE_COLLECTIVE: return "collective";
	case PROFILE_MESSAGE: return "message";
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
	pthread_mutex_unlock(&mutex);
	*context = c;
	*mask = getenv("LIGHTPATH_TEST_PROFILE_MASK") ? atoi(getenv("LIGHTPATH_TEST_PROFILE_MASK")) : 0xffff;
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
	struct event *of = calloc(1, sizeof *of), *parent = e->parent;
	*of = (struct event){.rank = e->rank, .kind = kind_name(e->kind), .open = 1};
	pthread_mutex_lock(&mutex);
	((struct context *)context)->events++;
	fprintf(out, "rank %d: %s in %s", e->rank, of->kind, parent ? parent->kind : "nothing");
#define CALL(c) fprintf(out, ": %s %zu %s root %d", c.function, c.count, c.type, c.root)
#define HOW(c) fprintf(out, " seq %d by %s %s on %d", (int)c.seq, c.algorithm, c.protocol, c.channels)
	if (strcmp(of->kind, "collective") == 0) {
#if VERSION >= 4
		CALL(e->collective_v4), HOW(e->collective_v4);
#elif VERSION == 3
		CALL(e->collective_v3), HOW(e->collective_v3);
#else
		CALL(e->collective_v2), HOW(e->collective_v2);
		fprintf(out, ", %zu bytes", e->collective_v2.bytes);
#endif
	} else if (strcmp(of->kind, "message") == 0) {
#if VERSION >= 4
		fprintf(out, ": %s %zu %s peer %d", e->message_v4.function, e->message_v4.count, e->message_v4.type,
			e->message_v4.peer);
#else
		fprintf(out, ": %s %zu %s peer %d", e->message_v2.function, e->message_v2.count, e->message_v2.type,
			e->message_v2.peer);
#endif
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
	fprintf(out, "rank %d: end of %s\n", e->rank, e->kind);
	fflush(out);
	pthread_mutex_unlock(&mutex);
	return 0; /* the event stays, so that a second stop is found */
}

static int state(void *event, int number, union profile_state *what)
{
	struct event *e = event;
	pthread_mutex_lock(&mutex);
	if (strcmp(e->kind, "kernel") || number != PROFILE_KERNEL_STOP || !what->timer)
		fprintf(out, "wrong state %d of %s\n", number, e->kind);
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
