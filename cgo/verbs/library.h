/* Internal: the functions of libibverbs that this package calls. */
#ifndef LP_VERBS_LIBRARY_H
#define LP_VERBS_LIBRARY_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "ibverbs.h"
#include "verbs.h"
#include <errno.h>

extern struct lpv_library {
	struct ibv_device **(*get_device_list)(int *count);
	void (*free_device_list)(struct ibv_device **list);
	const char *(*get_device_name)(struct ibv_device *device);
	struct ibv_context *(*open_device)(struct ibv_device *device);
	int (*close_device)(struct ibv_context *context);
	/* fills struct ibv_port_attr up to its field flags */
	int (*query_port)(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr);
	int (*query_gid_ex)(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
			    uint32_t flags, size_t size);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *context);
	int (*dealloc_pd)(struct ibv_pd *pd);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *at, size_t size, int access);
	int (*dereg_mr)(struct ibv_mr *mr);
	/* NULL if rdma-core is older than 34 */
	struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *pd, uint64_t offset, size_t size, uint64_t at, int fd,
					int access);
	struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *context);
	int (*destroy_comp_channel)(struct ibv_comp_channel *channel);
	struct ibv_cq *(*create_cq)(struct ibv_context *context, int entries, void *user,
				    struct ibv_comp_channel *channel, int vector);
	int (*destroy_cq)(struct ibv_cq *cq);
	int (*get_cq_event)(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **user);
	void (*ack_cq_events)(struct ibv_cq *cq, unsigned int count);
	struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
	int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
	int (*destroy_qp)(struct ibv_qp *qp);
	int (*fork_init)(void);
	int (*get_async_event)(struct ibv_context *context, struct ibv_async_event *event);
	void (*ack_async_event)(struct ibv_async_event *event);
} lpv;

/* failed returns errno, or EIO if the library has not set it. */
static inline int failed(void) { return errno ? errno : EIO; }

/* These calls need no symbol: they go through the table of the device's context. */
static inline int poll_cq(struct ibv_cq *cq, int room, struct ibv_wc *wc)
{
	return cq->context->ops.poll_cq(cq, room, wc);
}
static inline int req_notify_cq(struct ibv_cq *cq) { return cq->context->ops.req_notify_cq(cq, 0); }
static inline int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return qp->context->ops.post_send(qp, wr, bad);
}
static inline int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return qp->context->ops.post_recv(qp, wr, bad);
}

#endif
