/* Prints the layouts and values that package verbs relies on: of ibverbs.h, or with -DINSTALLED of the installed
 * header. TestLayout compares the two. */
#ifdef INSTALLED
#include <infiniband/verbs.h>
#else
#include "../ibverbs.h"
#endif
#include <stdio.h>

#define SIZE(type) printf("sizeof " #type " %zu\n", sizeof(type));
#define AT(type, field) printf(#type "." #field " at %zu, %zu bytes\n", offsetof(type, field), sizeof(((type *)0)->field));
#define VALUE(name) printf(#name " %d\n", (int)(name));

int main(void)
{
	AT(struct ibv_device, ibdev_path)
	AT(struct ibv_context, ops.poll_cq)
	AT(struct ibv_context, ops.req_notify_cq)
	AT(struct ibv_context, ops.post_send)
	AT(struct ibv_context, ops.post_recv) AT(struct ibv_context, async_fd) AT(struct ibv_mr, lkey) AT(
	    struct ibv_mr, rkey) AT(struct ibv_comp_channel,
				    fd) AT(struct ibv_cq, context) AT(struct ibv_qp,
								      context) AT(struct ibv_qp,
										  qp_num) AT(struct ibv_qp, qp_type)

	    SIZE(struct ibv_port_attr) AT(struct ibv_port_attr, state) AT(struct ibv_port_attr, active_mtu) AT(
		struct ibv_port_attr, gid_tbl_len) AT(struct ibv_port_attr, lid) AT(struct ibv_port_attr, link_layer)
		SIZE(struct ibv_gid_entry) AT(struct ibv_gid_entry, gid.raw) AT(struct ibv_gid_entry, gid_type) SIZE(
		    struct ibv_async_event) AT(struct ibv_async_event, element.qp)
		    AT(struct ibv_async_event, element.port_num) AT(struct ibv_async_event, event_type) SIZE(
			struct ibv_wc) AT(struct ibv_wc, wr_id) AT(struct ibv_wc, status)
			AT(struct ibv_wc, vendor_err) AT(struct ibv_wc, byte_len) AT(
			    struct ibv_wc,
			    imm_data) AT(struct ibv_wc,
					 qp_num) SIZE(struct ibv_qp_init_attr) AT(struct ibv_qp_init_attr,
										  send_cq) AT(struct ibv_qp_init_attr,
											      recv_cq)
			    AT(struct ibv_qp_init_attr, qp_type) AT(struct ibv_qp_init_attr, cap.max_send_wr) AT(
				struct ibv_qp_init_attr,
				cap
				    .max_recv_wr) AT(struct ibv_qp_init_attr,
						     cap
							 .max_send_sge) AT(struct ibv_qp_init_attr, cap.max_recv_sge)
				AT(struct ibv_qp_init_attr, cap.max_inline_data) SIZE(struct ibv_qp_attr) AT(
				    struct ibv_qp_attr,
				    qp_state) AT(struct ibv_qp_attr,
						 path_mtu) AT(struct ibv_qp_attr, rq_psn)
				    AT(struct ibv_qp_attr,
				       sq_psn) AT(struct ibv_qp_attr,
						  dest_qp_num) AT(struct ibv_qp_attr,
								  qp_access_flags) AT(struct ibv_qp_attr,
										      ah_attr.dlid) AT(struct ibv_qp_attr, ah_attr
															       .sl)
					AT(struct ibv_qp_attr, ah_attr.port_num) AT(struct ibv_qp_attr, ah_attr.is_global) AT(
					    struct
					    ibv_qp_attr,
					    ah_attr
						.grh
						.dgid
						.raw) AT(struct ibv_qp_attr,
							 ah_attr
							     .grh
							     .sgid_index) AT(struct ibv_qp_attr, ah_attr.grh.hop_limit)
					    AT(struct ibv_qp_attr, ah_attr.grh.traffic_class) AT(
						struct
						ibv_qp_attr,
						max_rd_atomic) AT(struct ibv_qp_attr,
								  max_dest_rd_atomic) AT(struct ibv_qp_attr,
											 min_rnr_timer)
						AT(struct ibv_qp_attr, port_num) AT(struct ibv_qp_attr, timeout) AT(
						    struct
						    ibv_qp_attr,
						    retry_cnt) AT(struct ibv_qp_attr, rnr_retry)
						    SIZE(struct
							 ibv_sge) AT(struct ibv_sge,
								     addr) AT(struct ibv_sge,
									      length) AT(struct ibv_sge,
											 lkey) SIZE(struct ibv_send_wr)
							AT(struct ibv_send_wr,
							   wr_id) AT(struct ibv_send_wr,
								     next) AT(struct ibv_send_wr,
									      sg_list) AT(struct ibv_send_wr,
											  num_sge) AT(struct
												      ibv_send_wr,
												      opcode) AT(struct
														 ibv_send_wr,
														 send_flags)
							    AT(struct ibv_send_wr, imm_data) AT(
								struct
								ibv_send_wr,
								wr.rdma
								    .remote_addr) AT(struct ibv_send_wr, wr.rdma.rkey)
								SIZE(struct ibv_recv_wr) AT(struct ibv_recv_wr, wr_id) AT(
								    struct
								    ibv_recv_wr,
								    next) AT(struct ibv_recv_wr,
									     sg_list) AT(struct ibv_recv_wr, num_sge)

								    VALUE(IBV_LINK_LAYER_ETHERNET) VALUE(IBV_GID_TYPE_IB) VALUE(
									IBV_GID_TYPE_ROCE_V1) VALUE(IBV_GID_TYPE_ROCE_V2)
									VALUE(IBV_MTU_256) VALUE(IBV_MTU_4096) VALUE(IBV_ACCESS_LOCAL_WRITE) VALUE(
									    IBV_ACCESS_REMOTE_WRITE) VALUE(IBV_QPT_RC)
									    VALUE(IBV_QPT_UC) VALUE(IBV_QPS_INIT) VALUE(
										IBV_QPS_RTR) VALUE(IBV_QPS_RTS) VALUE(IBV_WR_RDMA_WRITE)
										VALUE(IBV_WR_RDMA_WRITE_WITH_IMM) VALUE(
										    IBV_SEND_SIGNALED) VALUE(IBV_SEND_INLINE) VALUE(IBV_EVENT_CQ_ERR)
										    VALUE(IBV_EVENT_QP_FATAL) VALUE(IBV_EVENT_QP_REQ_ERR) VALUE(
											IBV_EVENT_QP_ACCESS_ERR) VALUE(IBV_EVENT_DEVICE_FATAL)
											VALUE(IBV_EVENT_PORT_ACTIVE) VALUE(
											    IBV_EVENT_PORT_ERR) VALUE(IBV_EVENT_LID_CHANGE)
											    VALUE(IBV_EVENT_PKEY_CHANGE) VALUE(
												IBV_EVENT_GID_CHANGE) VALUE(IBV_QP_STATE)
												VALUE(IBV_QP_ACCESS_FLAGS) VALUE(
												    IBV_QP_PKEY_INDEX)
												    VALUE(IBV_QP_PORT) VALUE(
													IBV_QP_AV) VALUE(IBV_QP_PATH_MTU)
													VALUE(IBV_QP_TIMEOUT) VALUE(
													    IBV_QP_RETRY_CNT) VALUE(IBV_QP_RNR_RETRY)
													    VALUE(IBV_QP_RQ_PSN) VALUE(
														IBV_QP_MAX_QP_RD_ATOMIC)
														VALUE(IBV_QP_MIN_RNR_TIMER) VALUE(
														    IBV_QP_SQ_PSN)
														    VALUE(
															IBV_QP_MAX_DEST_RD_ATOMIC)
															VALUE(
															    IBV_QP_DEST_QPN) return 0;
}
