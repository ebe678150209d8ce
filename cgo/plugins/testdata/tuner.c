/* A tuner plugin for tests, of the version VERSION. LIGHTPATH_TEST_TUNER is the number of the algorithm that it names
 * for an AllReduce of up to 64 KiB. It names PAT for every ReduceScatter. "-1": it names nothing. "init" and "ask" make
 * these functions fail. */
#include "tuner.h"

#include <stdlib.h>
#include <string.h>

#define SAYS(what) (strcmp(getenv("LIGHTPATH_TEST_TUNER"), what) == 0)

enum { REDUCESCATTER = 3, ALLREDUCE = 4, PAT = 6, SIMPLE = 2 };

static plugin_log say;
static int contexts[8], made;

static int begin(void **context, size_t ranks, size_t nodes, plugin_log log)
{
	say = log;
	say(PLUGIN_INFO, 0, __FILE__, __LINE__, "tuner of %zu ranks on %zu nodes", ranks, nodes);
	*context = &contexts[made++ % 8];
	return SAYS("init") ? 3 : 0;
}

static int named(int function, size_t bytes)
{
	int says = atoi(getenv("LIGHTPATH_TEST_TUNER"));
	if (function == REDUCESCATTER && says >= 0)
		return PAT;
	return function == ALLREDUCE && bytes <= 64 << 10 ? says : -1;
}

static int finalize(void *context)
{
	(*(int *)context)++;
	say(PLUGIN_INFO, 0, __FILE__, __LINE__, "finalize %d", *(int *)context);
	return 0;
}

#if VERSION >= 5
static int init(void **context, uint64_t comm, size_t ranks, size_t nodes, plugin_log log,
		struct tuner_domains *domains, struct tuner_constants *constants)
{
	constants->room[143] = comm;
	return domains->number == 1 && domains->most == (int)ranks ? begin(context, ranks, nodes, log) : 5;
}
#else
static int init(size_t ranks, size_t nodes, plugin_log log, void **context)
{
	return begin(context, ranks, nodes, log);
}
#endif

#if VERSION == 2
static int ask(void *context, int function, size_t bytes, int collnet, int nvls, int operations, int *algorithm,
	       int *protocol, int *channels)
{
	(void)context, (void)collnet, (void)nvls;
	*algorithm = named(function, bytes);
	*protocol = SIMPLE;
	*channels = operations;
#else
static int ask(void *context, int function, size_t bytes, int operations, tuner_costs *costs, int algorithms,
	       int protocols,
#if VERSION >= 4
	       int registered,
#endif
	       int *channels)
{
	int algorithm = named(function, bytes);
	(void)context;
#if VERSION >= 4
	(void)registered;
#endif
	if (algorithm >= 0 && algorithm < algorithms && protocols == SIMPLE + 1)
		(*costs)[algorithm][SIMPLE] = 0;
	*channels = operations;
#endif
	return SAYS("ask") ? 3 : 0;
}

#define JOIN(a, b) a##b
#define SYMBOL(version) JOIN(ncclTunerPlugin_v, version)
const struct tuner_plugin SYMBOL(VERSION) = {"test", {(void *)init}, {(void *)ask}, finalize};
