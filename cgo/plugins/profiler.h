/* The interface of NCCL's profiler plugins, versions 1 to 6: the parts that Lightpath uses, under names of its own. A
 * plugin is a library with a variable ncclProfiler_vN. Functions return an ncclResult_t. */
#ifndef LP_PLUGINS_PROFILER_H
#define LP_PLUGINS_PROFILER_H

#include "load.h"

enum { PROFILER_OLDEST = 1, PROFILER_NEWEST = 6 };

/* Kinds of events; a mask of them says which ones a plugin wants. Kernels exist since version 3, APIs since 5. */
enum {
	PROFILE_GROUP = 1 << 0, PROFILE_COLLECTIVE = 1 << 1, PROFILE_MESSAGE = 1 << 2, PROFILE_PROXY = 1 << 3,
	PROFILE_STEP = 1 << 4, PROFILE_CONTROL = 1 << 5, PROFILE_KERNEL = 1 << 6,
	PROFILE_GROUP_API = 1 << 8, PROFILE_COLLECTIVE_API = 1 << 9, PROFILE_MESSAGE_API = 1 << 10,
};

/* States of events. A proxy has OPs before version 4, and PROGRESS since then. STEP_SEND_PEER exists since 4. */
enum {
	OP_SEND_POSTED = 0, OP_SEND_PEER, OP_SENT, OP_SEND_DONE, OP_RECEIVE_POSTED, OP_RECEIVED, OP_FLUSHED, OP_RECEIVE_DONE,
	STEP_SEND_MEMORY = 8, STEP_SEND_NETWORK, STEP_RECEIVE_NETWORK, STEP_RECEIVE_FLUSH, STEP_RECEIVE_MEMORY,
	CONTROL_SLEEP = 15, CONTROL_WAKE = 16, PROGRESS = 19, STEP_SEND_PEER = 20, KERNEL_STOP = 22,
};

/* Strings stay valid for ever. Collectives and messages begin with name and comm before version 4. */
#define PROFILE_CALL const char *function; const void *send; void *receive; size_t count; int root; const char *type;
#define PROFILE_HOW uint8_t channels, warps; const char *algorithm, *protocol;
#define PROFILE_MESSAGE_V2 const char *function; void *at; const char *type; size_t count; int peer;
struct profile_event {
	uint64_t kind; /* one byte before version 5 */
	void *parent;
	int rank;
	union {
		struct {
			const char *name; uint64_t comm, seq; uint8_t function; const void *send; void *receive; size_t count;
			int root; uint8_t type; uint32_t op; size_t bytes; uint8_t channels, warps, algorithm, protocol;
			int collnet, nvls;
		} collective_v1;
		struct { const char *name; uint64_t comm, seq; PROFILE_CALL size_t bytes; PROFILE_HOW } collective_v2;
		struct { const char *name; uint64_t comm, seq; PROFILE_CALL PROFILE_HOW } collective_v3;
		struct { uint64_t seq; PROFILE_CALL PROFILE_HOW void *group; /* since 5 */ } collective_v4;
		struct {
			const char *name; uint64_t comm; uint8_t function; void *at; uint8_t type; size_t count; int peer;
		} message_v1;
		struct { const char *name; uint64_t comm; PROFILE_MESSAGE_V2 } message_v2;
		struct { PROFILE_MESSAGE_V2 uint8_t channels; void *group; /* since 5 */ } message_v4;
		struct { uint8_t captured; int depth; } group_api;
		struct {
			const char *function; size_t count; const char *type; int root; void *stream; uint8_t captured;
		} collective_api;
		struct { const char *function; size_t count; const char *type; void *stream; uint8_t captured; } message_api;
		struct { int process; uint8_t channel; int peer, steps, size, sends; } proxy;
		struct { int step; } step;
		struct { uint8_t channel; uint64_t timer; /* since 4 */ } kernel;
		char room[128]; /* for the other kinds of events of any version */
	};
};
union profile_state {
	uint64_t timer;
	struct { size_t bytes; int steps; /* before 4, of a proxy */ } transfer;
};

struct profiler_plugin {
	const char *name;
	union {
		int (*v2)(void **context, int *mask);
		int (*v4)(void **context, int *mask, const char *comm_name, uint64_t comm, int nodes, int ranks, int rank,
			  plugin_log log);
		int (*v5)(void **context, uint64_t comm, int *mask, const char *comm_name, int nodes, int ranks, int rank,
			  plugin_log log);
	} init;
	int (*start)(void *context, void **event, struct profile_event *what);
	int (*stop)(void *event);
	int (*state)(void *event, int state, union profile_state *what);
	int (*finalize)(void *context);
};

/* Measured with NVIDIA's headers. */
#define AT(member, version, offset) \
	_Static_assert(offsetof(struct profile_event, member) == (offset), #member " of version " #version)
AT(collective_v1.op, 1, 88); AT(collective_v1.algorithm, 1, 106); AT(collective_v1.nvls, 1, 112);
AT(message_v1.count, 1, 64); AT(message_v1.peer, 1, 72); AT(proxy.channel, 1, 28); AT(proxy.sends, 1, 44);
AT(step.step, 1, 24);
AT(collective_v2.seq, 2, 40); AT(collective_v2.algorithm, 2, 112); AT(collective_v3.algorithm, 3, 104);
AT(collective_v4.seq, 4, 24); AT(collective_v4.algorithm, 4, 88); AT(collective_v4.group, 5, 104);
AT(message_v2.peer, 2, 72); AT(message_v4.peer, 4, 56); AT(message_v4.group, 5, 64);
AT(collective_api.stream, 5, 56); AT(message_api.stream, 5, 48); AT(kernel.timer, 4, 32);
#undef AT

#endif
