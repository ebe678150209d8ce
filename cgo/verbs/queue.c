/* Completion queues and queue pairs. */
#include "library.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <string.h>

int lpv_cq(struct lpv_device *d, int entries, struct lpv_cq *cq)
{
	errno = 0;
	cq->channel = lpv.create_comp_channel(d->context);
	if (!cq->channel)
		return failed();
	cq->fd = cq->channel->fd;
	if (fcntl(cq->fd, F_SETFL, fcntl(cq->fd, F_GETFL) | O_NONBLOCK) == 0) {
		cq->cq = lpv.create_cq(d->context, entries, NULL, cq->channel, 0);
		if (cq->cq)
			return 0;
	}
	int rc = failed();
	lpv.destroy_comp_channel(cq->channel);
	return rc;
}

int lpv_cq_arm(struct lpv_cq *cq) { return req_notify_cq(cq->cq); }

int lpv_cq_quiet(struct lpv_cq *cq)
{
	struct ibv_cq *of;
	void *user;
	errno = 0;
	if (lpv.get_cq_event(cq->channel, &of, &user))
		return failed();
	lpv.ack_cq_events(of, 1);
	return 0;
}

int lpv_cq_close(struct lpv_cq *cq)
{
	while (lpv_cq_quiet(cq) == 0)
		; /* a queue with unacknowledged events is never destroyed */
	int rc = lpv.destroy_cq(cq->cq);
	int rc2 = lpv.destroy_comp_channel(cq->channel);
	return rc ? rc : rc2;
}

enum { BATCH = 32 };

int lpv_poll(struct ibv_cq *cq, struct lpv_done *done, int room)
{
	struct ibv_wc wc[BATCH];
	int n = poll_cq(cq, room < BATCH ? room : BATCH, wc);
	for (int i = 0; i < n; i++) {
		struct lpv_done *d = &done[i];
		d->id = wc[i].wr_id;
		d->status = wc[i].status;
		d->vendor = wc[i].vendor_err;
		d->bytes = wc[i].byte_len;
		d->imm = ntohl(wc[i].imm_data);
		d->qpn = wc[i].qp_num;
	}
	return n;
}

int lpv_qp(struct lpv_device *d, struct ibv_cq *cq, bool unacknowledged, int port, int sends, int recvs,
	   struct lpv_qp *q)
{
	struct ibv_qp_init_attr init;
	for (;; q->inlined /= 2) { /* a device tells its limit of inline data only by refusing more */
		memset(&init, 0, sizeof init);
		init.send_cq = init.recv_cq = cq;
		init.qp_type = unacknowledged ? IBV_QPT_UC : IBV_QPT_RC;
		init.cap.max_send_wr = sends;
		init.cap.max_recv_wr = recvs;
		init.cap.max_send_sge = 2; /* a header, and its data */
		init.cap.max_recv_sge = 1;
		init.cap.max_inline_data = q->inlined;
		errno = 0;
		q->qp = lpv.create_qp(d->pd, &init);
		if (q->qp || q->inlined == 0)
			break;
	}
	if (!q->qp)
		return failed();
	q->inlined = init.cap.max_inline_data;
	q->number = q->qp->qp_num;

	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_INIT, .port_num = port, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	int rc = lpv.modify_qp(q->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (rc)
		lpv.destroy_qp(q->qp);
	return rc;
}

static int mtu_of(int bytes)
{
	int m = IBV_MTU_256;
	while (m < IBV_MTU_4096 && 256 << m <= bytes)
		m++;
	return m;
}

int lpv_connect(struct ibv_qp *qp, const struct lpv_path *p)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = mtu_of(p->mtu), .dest_qp_num = p->peer_qpn, .rq_psn = p->peer_psn,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = {.dlid = p->peer_lid, .sl = p->service_level, .port_num = p->port, .is_global = p->ethernet},
	};
	if (p->ethernet) {
		memcpy(attr.ah_attr.grh.dgid.raw, p->peer_gid, 16);
		attr.ah_attr.grh.sgid_index = p->gid_index;
		attr.ah_attr.grh.hop_limit = 255;
		attr.ah_attr.grh.traffic_class = p->traffic_class;
	}
	int reliable = qp->qp_type == IBV_QPT_RC;
	int rc = lpv.modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			       (reliable ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
	if (rc)
		return rc;
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .sq_psn = p->psn, .timeout = p->timeout, .retry_cnt = p->retries,
			.rnr_retry = 6, /* 7 retries for ever */ .max_rd_atomic = 1,
	};
	return lpv.modify_qp(
	    qp, &attr,
	    IBV_QP_STATE | IBV_QP_SQ_PSN |
		(reliable ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0));
}

int lpv_qp_close(struct ibv_qp *qp) { return lpv.destroy_qp(qp); }

enum { SENDS = 16 };

int lpv_post_send(struct ibv_qp *qp, const struct lpv_send *sends, int *count)
{
	struct ibv_send_wr wr[SENDS], *bad = NULL;
	struct ibv_sge sge[SENDS][2];
	int n = *count, posted = 0;
	while (posted < n) {
		int k = n - posted < SENDS ? n - posted : SENDS;
		for (int i = 0; i < k; i++) {
			const struct lpv_send *s = &sends[posted + i];
			sge[i][0] = (struct ibv_sge){.addr = s->local, .length = s->length, .lkey = s->lkey};
			sge[i][1] = (struct ibv_sge){.addr = s->data, .length = s->data_length, .lkey = s->data_key};
			wr[i] = (struct ibv_send_wr){
			    .wr_id = s->id,
			    .next = i + 1 < k ? &wr[i + 1] : NULL,
			    .sg_list = sge[i],
			    .num_sge = (s->length != 0) + (s->data_length != 0),
			    .opcode = s->flags & LPV_IMMEDIATE ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
			    .send_flags = (s->flags & LPV_SIGNALED ? IBV_SEND_SIGNALED : 0) |
					  (s->flags & LPV_INLINE ? IBV_SEND_INLINE : 0),
			    .imm_data = htonl(s->imm),
			    .wr.rdma = {.remote_addr = s->remote, .rkey = s->rkey},
			};
		}
		int rc = post_send(qp, wr, &bad);
		if (rc) {
			*count = posted + (bad ? (int)(bad - wr) : 0);
			return rc < 0 ? failed() : rc;
		}
		posted += k;
	}
	return 0;
}

int lpv_post_recv(struct ibv_qp *qp, uint64_t id, int count)
{
	struct ibv_recv_wr wr[SENDS], *bad;
	while (count > 0) {
		int k = count < SENDS ? count : SENDS;
		for (int i = 0; i < k; i++)
			wr[i] = (struct ibv_recv_wr){.wr_id = id, .next = i + 1 < k ? &wr[i + 1] : NULL};
		int rc = post_recv(qp, wr, &bad);
		if (rc)
			return rc < 0 ? failed() : rc;
		count -= k;
	}
	return 0;
}
