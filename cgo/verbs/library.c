/* Loads libibverbs at run time, so that a machine without it can still load this library. */
#include "library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

struct lpv_library lpv;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char failure[256];

static const struct { const char *name, *version; size_t at; } symbols[] = {
#define SYMBOL(name, version) {"ibv_" #name, version, offsetof(struct lpv_library, name)}
	SYMBOL(get_device_list, "IBVERBS_1.1"), SYMBOL(free_device_list, "IBVERBS_1.1"),
	SYMBOL(get_device_name, "IBVERBS_1.1"), SYMBOL(open_device, "IBVERBS_1.1"), SYMBOL(close_device, "IBVERBS_1.1"),
	SYMBOL(query_port, "IBVERBS_1.1"), SYMBOL(alloc_pd, "IBVERBS_1.1"), SYMBOL(dealloc_pd, "IBVERBS_1.1"),
	SYMBOL(reg_mr, "IBVERBS_1.1"), SYMBOL(dereg_mr, "IBVERBS_1.1"),
	SYMBOL(create_comp_channel, "IBVERBS_1.0"), SYMBOL(destroy_comp_channel, "IBVERBS_1.0"),
	SYMBOL(create_cq, "IBVERBS_1.1"), SYMBOL(destroy_cq, "IBVERBS_1.1"),
	SYMBOL(get_cq_event, "IBVERBS_1.1"), SYMBOL(ack_cq_events, "IBVERBS_1.1"),
	SYMBOL(create_qp, "IBVERBS_1.1"), SYMBOL(modify_qp, "IBVERBS_1.1"), SYMBOL(destroy_qp, "IBVERBS_1.1"),
	SYMBOL(fork_init, "IBVERBS_1.1"),
	SYMBOL(get_async_event, "IBVERBS_1.1"), SYMBOL(ack_async_event, "IBVERBS_1.1"),
	{"_ibv_query_gid_ex", "IBVERBS_1.11", offsetof(struct lpv_library, query_gid_ex)},
#undef SYMBOL
};

static void load(void)
{
	void *so = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!so) {
		const char *why = dlerror();
		snprintf(failure, sizeof failure, "%s", why ? why : "libibverbs.so.1 does not load");
		return;
	}
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		void *at = dlvsym(so, symbols[i].name, symbols[i].version);
		/* builds give the private symbols different versions */
		if (!at)
			at = dlsym(so, symbols[i].name);
		if (!at) {
			snprintf(failure, sizeof failure,
				 "libibverbs.so.1 has no %s@%s: rdma-core 32 or later is needed", symbols[i].name,
				 symbols[i].version);
			return;
		}
		*(void **)((char *)&lpv + symbols[i].at) = at;
	}
	*(void **)&lpv.reg_dmabuf_mr = dlsym(so, "ibv_reg_dmabuf_mr");
	/* A forked child must not take the pages of queues from its parent. The call fails if the kernel ensures that
	 * already, or if the program opened a device before: neither is an error. */
	lpv.fork_init();
}

const char *lpv_load(void)
{
	pthread_once(&once, load);
	return failure[0] ? failure : NULL;
}
