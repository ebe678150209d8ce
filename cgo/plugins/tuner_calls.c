/* Calls of a tuner plugin of any version. */
#include "tuner_calls.h"

struct lpt_init lpt_init(struct lpt t, uint64_t comm, size_t ranks, struct tuner_domains nodes)
{
	struct lpt_init r = {0};
	struct tuner_constants constants = {{0}};
	void *context = NULL;
	if (t.version >= 5)
		r.rc = t.plugin->init.v5(&context, comm, ranks, nodes.number, lp_plugin_log, &nodes, &constants);
	else
		r.rc = t.plugin->init.v2(ranks, nodes.number, lp_plugin_log, &context);
	r.context = (uintptr_t)context;
	return r;
}

int lpt_ask(struct lpt t, int function, size_t bytes, tuner_costs *costs)
{
	void *context = (void *)t.context;
	int channels = 0, algorithm = -1, protocol = -1;
	if (t.version >= 4)
		return t.plugin->ask.v4(context, function, bytes, 1, costs, TUNER_ALGORITHMS, TUNER_PROTOCOLS, 0, &channels);
	if (t.version == 3)
		return t.plugin->ask.v3(context, function, bytes, 1, costs, TUNER_ALGORITHMS, TUNER_PROTOCOLS, &channels);
	int rc = t.plugin->ask.v2(context, function, bytes, 0, 0, 1, &algorithm, &protocol, &channels);
	if (algorithm >= 0 && algorithm < TUNER_ALGORITHMS)
		(*costs)[algorithm][0] = 0;
	return rc;
}

void lpt_finalize(struct lpt t) { t.plugin->finalize((void *)t.context); }
