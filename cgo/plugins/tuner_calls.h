/* Calls of a tuner plugin of any version, as package plugins (Go) makes them. */
#ifndef LP_PLUGINS_TUNER_CALLS_H
#define LP_PLUGINS_TUNER_CALLS_H

#include "tuner.h"

/* A plugin and its context for a communicator. */
struct lpt { const struct tuner_plugin *plugin; int version; uintptr_t context; };
/* lpt_init returns an ncclResult_t as rc, and the context. */
struct lpt_init { int rc; uintptr_t context; };
struct lpt_init lpt_init(struct lpt t, uint64_t comm, size_t ranks, struct tuner_domains nodes);
/* lpt_ask lets the plugin change costs, and returns an ncclResult_t. costs are not on the stack of a goroutine, which a
 * line for the log may move. */
int lpt_ask(struct lpt t, int function, size_t bytes, tuner_costs *costs);
void lpt_finalize(struct lpt t);

#endif
