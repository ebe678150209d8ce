/* Calls of a profiler plugin of any version. */
#include "profiler_calls.h"

#include <string.h>
#include <unistd.h>

/* Events that need other events as parents; a plugin that wants one of them gets the parents, too. */
enum {
	ALL_PROXY = PROFILE_PROXY | PROFILE_STEP,
	ALL_MESSAGE = PROFILE_MESSAGE | PROFILE_KERNEL | ALL_PROXY,
	ALL_COLLECTIVE = PROFILE_COLLECTIVE | PROFILE_KERNEL | ALL_PROXY,
	ALL_GROUP = PROFILE_GROUP | ALL_MESSAGE | ALL_COLLECTIVE,
	ALL_API = PROFILE_GROUP_API | PROFILE_COLLECTIVE_API | PROFILE_MESSAGE_API | ALL_GROUP,
};

struct lpp_init lpp_init(struct lpp p, int *mask, int nodes, int ranks)
{
	struct lpp_init r = {0};
	void *context = NULL;
	if (p.version >= 5)
		r.rc = p.plugin->init.v5(&context, p.comm, mask, p.name, nodes, ranks, p.rank, lp_plugin_log);
	else if (p.version == 4)
		r.rc = p.plugin->init.v4(&context, mask, p.name, p.comm, nodes, ranks, p.rank, lp_plugin_log);
	else
		r.rc = p.plugin->init.v2(&context, mask);
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

void lpp_stop(struct lpp p, uintptr_t event)
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
#define SET(version, suffix) \
	(e.message_v##version.function = c->function##suffix, e.message_v##version.type = c->type##suffix, \
	 e.message_v##version.count = c->count, e.message_v##version.peer = c->root)
#define SET_COMM(version) (e.message_v##version.name = p.name, e.message_v##version.comm = p.comm)
	if (p.version >= 4) {
		SET(4,);
		e.message_v4.channels = 1;
		if (p.version >= 5)
			e.message_v4.group = (void *)group;
	} else if (p.version >= 2) {
		SET(2,);
		SET_COMM(2);
	} else {
		SET(1, _number);
		SET_COMM(1);
	}
#undef SET_COMM
#undef SET
	return start(p, ALL_MESSAGE, PROFILE_MESSAGE, parent, &e);
}

static uintptr_t begin_collective(struct lpp p, uintptr_t parent, uintptr_t group, const struct lpp_call *c)
{
	struct profile_event e;
	memset(&e, 0, sizeof e);
#define SET(version, suffix, algorithm_, protocol_) \
	(e.collective_v##version.seq = c->seq, e.collective_v##version.function = c->function##suffix, \
	 e.collective_v##version.count = c->count, e.collective_v##version.root = c->root, \
	 e.collective_v##version.type = c->type##suffix, e.collective_v##version.channels = 1, \
	 e.collective_v##version.algorithm = algorithm_, e.collective_v##version.protocol = protocol_)
#define SET_COMM(version) (e.collective_v##version.name = p.name, e.collective_v##version.comm = p.comm)
	switch (p.version) {
	case 1:
		SET(1, _number, 1 /* RING: plugins know no number of an algorithm of Lightpath */, 2 /* SIMPLE */);
		SET_COMM(1);
		e.collective_v1.op = c->op;
		e.collective_v1.bytes = c->bytes;
		break;
	case 2:
		SET(2,, c->algorithm, "SIMPLE");
		SET_COMM(2);
		e.collective_v2.bytes = c->bytes;
		break;
	case 3:
		SET(3,, c->algorithm, "SIMPLE");
		SET_COMM(3);
		break;
	default:
		SET(4,, c->algorithm, "SIMPLE");
		if (p.version >= 5)
			e.collective_v4.group = (void *)group;
	}
#undef SET_COMM
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
	lpp_stop(p, e.work); /* before its kernel, as in NCCL */
	if (e.kernel && p.version >= 4)
		p.plugin->state((void *)e.kernel, KERNEL_STOP, &s);
	lpp_stop(p, e.kernel);
	lpp_stop(p, e.api);
}

int lpp_planes(struct lpp p) { return (p.mask & (ALL_PROXY | PROFILE_CONTROL)) != 0; }

void lpp_proxy_begin(struct lpp p, uintptr_t work, struct lpp_proxy *o)
{
	struct profile_event e;
	memset(&e, 0, sizeof e);
	e.proxy.process = getpid();
	e.proxy.channel = o->plane;
	e.proxy.peer = o->peer;
	e.proxy.steps = o->transfers;
	e.proxy.size = o->size;
	e.proxy.sends = o->sends;
	o->event = start(p, ALL_PROXY, PROFILE_PROXY, work, &e);
}

void lpp_proxy_end(struct lpp p, struct lpp_proxy *o)
{
	lpp_stop(p, o->event);
	o->event = 0;
}

/* The states that the begin and the end of a transfer record, of the proxy and of the transfer, in NCCL's order. The
 * rank does not wait for memory, nor the flush of data: these states last no time. */
enum { NONE = -1 };
struct moment { signed char proxy[3], step[3]; };
static const struct moment moments[2][2][2] = { /* since version 4; sends; ends */
	{
		{{{OP_RECEIVE_POSTED, NONE, NONE}, {STEP_RECEIVE_NETWORK, NONE, NONE}},
		 {{OP_RECEIVED, OP_FLUSHED, OP_RECEIVE_DONE}, {STEP_RECEIVE_FLUSH, STEP_RECEIVE_MEMORY, NONE}}},
		{{{OP_SEND_POSTED, OP_SEND_PEER, OP_SENT}, {STEP_SEND_MEMORY, STEP_SEND_NETWORK, NONE}},
		 {{OP_SEND_DONE, NONE, NONE}, {NONE, NONE, NONE}}},
	},
	{
		{{{PROGRESS, NONE, NONE}, {STEP_RECEIVE_NETWORK, NONE, NONE}},
		 {{NONE, NONE, NONE}, {STEP_RECEIVE_FLUSH, STEP_RECEIVE_MEMORY, NONE}}},
		{{{PROGRESS, NONE, NONE}, {STEP_SEND_MEMORY, STEP_SEND_PEER, STEP_SEND_NETWORK}},
		 {{NONE, NONE, NONE}, {NONE, NONE, NONE}}},
	},
};

static void record(struct lpp p, uintptr_t event, const signed char *states, union profile_state s)
{
	for (int i = 0; event && i < 3 && states[i] != NONE; i++)
		p.plugin->state((void *)event, states[i], &s);
}

/* note records the states of a moment of a transfer. Proxies before version 4 count all bytes and transfers. */
static void note(struct lpp p, struct lpp_proxy *o, uintptr_t step, int ends, uint64_t bytes)
{
	const struct moment *m = &moments[p.version >= 4][o->sends][ends];
	int n = ends ? ++o->ended : ++o->begun;
	if (ends != o->sends)
		o->bytes += bytes;
	if (p.version < 4 || n == 1)
		record(p, o->event, m->proxy, (union profile_state){.transfer = {o->bytes, n}});
	record(p, step, m->step, (union profile_state){.transfer = {bytes, 0}});
}

uintptr_t lpp_transfer_begin(struct lpp p, struct lpp_proxy *o, uint64_t bytes)
{
	uintptr_t step = 0;
	struct profile_event e;
	memset(&e, 0, sizeof e);
	e.step.step = o->begun;
	if (o->event)
		step = start(p, PROFILE_STEP, PROFILE_STEP, o->event, &e);
	note(p, o, step, 0, bytes);
	return step;
}

void lpp_transfer_end(struct lpp p, struct lpp_proxy *o, uintptr_t step, uint64_t bytes)
{
	note(p, o, step, 1, bytes);
	lpp_stop(p, step);
	if (o->ended == o->transfers)
		lpp_proxy_end(p, o);
}

uintptr_t lpp_hold_begin(struct lpp p)
{
	struct profile_event e;
	memset(&e, 0, sizeof e);
	uintptr_t event = start(p, PROFILE_CONTROL, PROFILE_CONTROL, 0, &e);
	record(p, event, (const signed char[]){CONTROL_SLEEP, NONE, NONE}, (union profile_state){0});
	return event;
}

void lpp_hold_end(struct lpp p, uintptr_t event)
{
	record(p, event, (const signed char[]){CONTROL_WAKE, NONE, NONE}, (union profile_state){0});
	lpp_stop(p, event);
}

void lpp_close(struct lpp p, struct lpp_group g)
{
	lpp_stop(p, g.group);
	lpp_stop(p, g.api);
}

void lpp_finalize(struct lpp p) { p.plugin->finalize((void *)p.context); }
