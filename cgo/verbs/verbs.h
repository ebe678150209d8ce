/* The calls of libibverbs, as package verbs (Go) uses them. All functions except lpv_load and lpv_poll return 0 or
 * an errno. lpv_load must have succeeded before any other is called. */
#ifndef LP_VERBS_H
#define LP_VERBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ibv_context;
struct ibv_pd;
struct ibv_mr;
struct ibv_comp_channel;
struct ibv_cq;
struct ibv_qp;

/* soft: the device is soft-RoCE. events: the descriptor of its events, non-blocking. */
struct lpv_device { struct ibv_context *context; struct ibv_pd *pd; bool soft; int events; };
struct lpv_cq { struct ibv_comp_channel *channel; struct ibv_cq *cq; int fd; };
struct lpv_port { int state, mtu, lid, gids; bool ethernet; };
struct lpv_region { struct ibv_mr *mr; uint32_t lkey, rkey; };
/* inlined: the most bytes of inline data. */
struct lpv_qp { struct ibv_qp *qp; uint32_t number; int inlined; };

/* rdma.SendRequest and rdma.Completion, field by field. device.go checks their sizes. */
struct lpv_send {
	uint64_t id, local, remote, data;
	uint32_t lkey, rkey, data_key, length, data_length, imm, flags, unused;
};
struct lpv_done { uint64_t id; uint32_t status, vendor, bytes, imm, qpn, unused; };
enum { LPV_SIGNALED = 1, LPV_INLINE = 2, LPV_IMMEDIATE = 4 };

struct lpv_path {
	uint8_t peer_gid[16];
	uint32_t peer_qpn, peer_psn, psn;
	bool ethernet;
	int port, gid_index, peer_lid, mtu;
	int traffic_class, service_level, timeout, retries;
};

/* lpv_load loads the library once. It returns why the library cannot be used, or NULL. */
const char *lpv_load(void);

/* lpv_name writes the name of the i-th device; ENOENT ends the list. */
int lpv_name(int i, char *name, size_t size);
int lpv_open(const char *name, struct lpv_device *d);
int lpv_close(struct lpv_device *d);
int lpv_port(struct lpv_device *d, int port, struct lpv_port *p);
/* type: 0 not in use, 1 InfiniBand, 2 RoCE v1, 3 RoCE v2 */
int lpv_gid(struct lpv_device *d, int port, int index, uint8_t gid[16], int *type);

/* lpv_event takes the next event of a device: its kind, and the number of its port or queue pair. EAGAIN: there is
 * none. */
enum { LPV_OTHER, LPV_DEVICE_FATAL, LPV_QUEUE_FAILED, LPV_CQ_FAILED, LPV_PORT_DOWN, LPV_PORT_UP, LPV_ADDRESS_MOVED };
int lpv_event(struct lpv_device *d, int *kind, uint32_t *number);

int lpv_register(struct lpv_device *d, void *at, size_t size, bool written, struct lpv_region *r);
/* lpv_register_buf registers a part of a dma-buf, which peers may write to. ENOTSUP: the library has no such
 * function. */
int lpv_register_buf(struct lpv_device *d, int fd, uint64_t offset, size_t size, uint64_t at, struct lpv_region *r);
int lpv_deregister(struct lpv_region *r);

int lpv_cq(struct lpv_device *d, int entries, struct lpv_cq *cq);
int lpv_cq_arm(struct lpv_cq *cq);
/* lpv_cq_quiet takes an event. EAGAIN: there was none. */
int lpv_cq_quiet(struct lpv_cq *cq);
int lpv_cq_close(struct lpv_cq *cq);
/* lpv_poll returns how many completions it wrote, or a negative number. */
int lpv_poll(struct ibv_cq *cq, struct lpv_done *done, int room);

/* lpv_qp creates a queue pair, of type UC if unacknowledged, else RC. It lowers q->inlined to the device's limit. */
int lpv_qp(struct lpv_device *d, struct ibv_cq *cq, bool unacknowledged, int port, int sends, int recvs,
	   struct lpv_qp *q);
int lpv_connect(struct ibv_qp *qp, const struct lpv_path *path);
int lpv_qp_close(struct ibv_qp *qp);
/* lpv_post_send sets *count to the number of requests posted. */
int lpv_post_send(struct ibv_qp *qp, const struct lpv_send *sends, int *count);
int lpv_post_recv(struct ibv_qp *qp, uint64_t id, int count);

#endif
