/* Calls of a profiler plugin of any version. */
#include "profiler_calls.h"

#include <string.h>

/* Events that need other events as parents; a plugin that wants one of them gets the parents, too. */
enum {
	ALL_MESSAGE = PROFILE_MESSAGE | PROFILE_KERNEL,
	ALL_COLLECTIVE = PROFILE_COLLECTIVE | PROFILE_KERNEL,
	ALL_GROUP = PROFILE_GROUP | ALL_MESSAGE | ALL_COLLECTIVE,
	ALL_API = PROFILE_GROUP_API | PROFILE_COLLECTIVE_API | PROFILE_MESSAGE_API | ALL_GROUP,
};

struct lpp_init lpp_init(struct lpp p, int nodes, int ranks)
{
	struct lpp_init r = {0};
	void *context = NULL;
	if (p.version >= 5)
		r.rc = p.plugin->init.v5(&context, p.comm, &r.mask, p.name, nodes, ranks, p.rank, lp_plugin_log);
	else if (p.version == 4)
		r.rc = p.plugin->init.v4(&context, &r.mask, p.name, p.comm, nodes, ranks, p.rank, lp_plugin_log);
	else
		r.rc = p.plugin->init.v2(&context, &r.mask);
	r.context = (uintptr_t)context;
	return r;
}

/* start starts an event if the mask has one of wanted. An event that the plugin refuses is none. */
static uintptr_t start(struct lpp p, int wanted, int kind, uintptr_t parent, struct profile_event *e)
{
	void *event = NULL;
	if (!(p.mask & wanted))
		return 0;
	e->kind = kind;
	e->parent = (void *)parent;
	e->rank = p.rank;
	return p.plugin->start((void *)p.context, &event, e) ? 0 : (uintptr_t)event;
}

static void stop(struct lpp p, uintptr_t event)
{
	if (event)
		p.plugin->stop((void *)event);
}

struct lpp_group lpp_open(struct lpp p)
{
	struct lpp_group g = {0};
	struct profile_event e;
	memset(&e, 0, sizeof e);
	if (p.version >= 5) {
		e.group_api.depth = 1;
		g.api = start(p, ALL_API, PROFILE_GROUP_API, 0, &e);
		memset(&e, 0, sizeof e);
	}
	g.group = start(p, ALL_GROUP, PROFILE_GROUP, 0, &e);
	return g;
}

static uintptr_t begin_api(struct lpp p, struct lpp_group g, const struct lpp_call *c)
{
	struct profile_event e;
	memset(&e, 0, sizeof e);
	if (c->message) {
		e.message_api.function = c->function;
		e.message_api.count = c->count;
		e.message_api.type = c->type;
		return start(p, PROFILE_MESSAGE_API | ALL_MESSAGE, PROFILE_MESSAGE_API, g.api, &e);
	}
	e.collective_api.function = c->function;
	e.collective_api.count = c->count;
	e.collective_api.type = c->type;
	e.collective_api.root = c->root;
	return start(p, PROFILE_COLLECTIVE_API | ALL_COLLECTIVE, PROFILE_COLLECTIVE_API, g.api, &e);
}

static uintptr_t begin_message(struct lpp p, uintptr_t parent, uintptr_t group, const struct lpp_call *c)
{
	struct profile_event e;
	memset(&e, 0, sizeof e);
#define SET(version) \
	(e.message_v##version.function = c->function, e.message_v##version.type = c->type, \
	 e.message_v##version.count = c->count, e.message_v##version.peer = c->root)
	if (p.version >= 4) {
		SET(4);
		e.message_v4.channels = 1;
		if (p.version >= 5)
			e.message_v4.group = (void *)group;
	} else {
		SET(2);
		e.message_v2.name = p.name;
		e.message_v2.comm = p.comm;
	}
#undef SET
	return start(p, ALL_MESSAGE, PROFILE_MESSAGE, parent, &e);
}

static uintptr_t begin_collective(struct lpp p, uintptr_t parent, uintptr_t group, const struct lpp_call *c)
{
	struct profile_event e;
	memset(&e, 0, sizeof e);
#define SET(version) \
	(e.collective_v##version.seq = c->seq, e.collective_v##version.function = c->function, \
	 e.collective_v##version.count = c->count, e.collective_v##version.root = c->root, \
	 e.collective_v##version.type = c->type, e.collective_v##version.channels = 1, \
	 e.collective_v##version.algorithm = c->algorithm, e.collective_v##version.protocol = "SIMPLE")
	if (p.version >= 4) {
		SET(4);
		if (p.version >= 5)
			e.collective_v4.group = (void *)group;
	} else if (p.version == 3) {
		SET(3);
		e.collective_v3.name = p.name;
		e.collective_v3.comm = p.comm;
	} else {
		SET(2);
		e.collective_v2.name = p.name;
		e.collective_v2.comm = p.comm;
		e.collective_v2.bytes = c->bytes;
	}
#undef SET
	return start(p, ALL_COLLECTIVE, PROFILE_COLLECTIVE, parent, &e);
}

struct lpp_events lpp_begin(struct lpp p, struct lpp_group g, struct lpp_call c, uint64_t now)
{
	struct lpp_events of = {0};
	uintptr_t parent = g.group;
	if (p.version >= 5)
		parent = of.api = begin_api(p, g, &c);
	of.work = c.message ? begin_message(p, parent, g.group, &c) : begin_collective(p, parent, g.group, &c);
	if (p.version >= 3 && of.work) {
		struct profile_event e;
		memset(&e, 0, sizeof e);
		if (p.version >= 4)
			e.kernel.timer = now;
		of.kernel = start(p, PROFILE_KERNEL, PROFILE_KERNEL, of.work, &e);
	}
	return of;
}

void lpp_end(struct lpp p, struct lpp_events e, uint64_t now)
{
	union profile_state s = {.timer = now};
	stop(p, e.work); /* before its kernel, as in NCCL */
	if (e.kernel && p.version >= 4)
		p.plugin->state((void *)e.kernel, PROFILE_KERNEL_STOP, &s);
	stop(p, e.kernel);
	stop(p, e.api);
}

void lpp_close(struct lpp p, struct lpp_group g)
{
	stop(p, g.group);
	stop(p, g.api);
}

void lpp_finalize(struct lpp p) { p.plugin->finalize((void *)p.context); }
