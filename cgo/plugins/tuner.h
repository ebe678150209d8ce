/* The interface of NCCL's tuner plugins, versions 2 to 6: the parts that Lightpath uses, under names of its own. A
 * plugin is a library with a variable ncclTunerPlugin_vN. Functions return an ncclResult_t. */
#ifndef LP_PLUGINS_TUNER_H
#define LP_PLUGINS_TUNER_H

#include "load.h"

enum { TUNER_OLDEST = 2, TUNER_NEWEST = 6 };
enum { TUNER_ALGORITHMS = 7, TUNER_PROTOCOLS = 3 };

/* Domains of NVLink, and the least and most ranks of one. */
struct tuner_domains { int number, least, most; };
/* Constants of NCCL's model of costs, which a plugin may read and change. */
struct tuner_constants { double room[144]; };
/* A table of costs; NCCL declares a pointer to it as float **. */
typedef float tuner_costs[TUNER_ALGORITHMS][TUNER_PROTOCOLS];

struct tuner_plugin {
	const char *name;
	union {
		int (*v2)(size_t ranks, size_t nodes, plugin_log log, void **context);
		int (*v5)(void **context, uint64_t comm, size_t ranks, size_t nodes, plugin_log log,
			  struct tuner_domains *domains, struct tuner_constants *constants);
	} init;
	union {
		int (*v2)(void *context, int function, size_t bytes, int collnet, int nvls, int operations, int *algorithm,
			  int *protocol, int *channels);
		int (*v3)(void *context, int function, size_t bytes, int operations, tuner_costs *costs, int algorithms,
			  int protocols, int *channels);
		int (*v4)(void *context, int function, size_t bytes, int operations, tuner_costs *costs, int algorithms,
			  int protocols, int registered, int *channels);
	} ask;
	int (*finalize)(void *context);
	/* Since version 6, a function for the sizes of chunks, of which Lightpath has none. */
};

#endif
