/* Devices, ports and memory. */
#include "library.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int lpv_name(int i, char *name, size_t size)
{
	int count, rc = ENOENT;
	errno = 0;
	struct ibv_device **list = lpv.get_device_list(&count);
	if (!list)
		return failed();
	if (i < count) {
		snprintf(name, size, "%s", lpv.get_device_name(list[i]));
		rc = 0;
	}
	lpv.free_device_list(list);
	return rc;
}

/* Only the driver of soft-RoCE gives its devices the attribute parent: the network interface below. */
static bool is_soft(const struct ibv_device *d)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof path, "%s/parent", d->ibdev_path);
	return n < (int)sizeof path && access(path, F_OK) == 0;
}

int lpv_open(const char *name, struct lpv_device *d)
{
	int count, rc = ENODEV;
	errno = 0;
	struct ibv_device **list = lpv.get_device_list(&count);
	if (!list)
		return failed();
	for (int i = 0; i < count; i++) {
		if (strcmp(lpv.get_device_name(list[i]), name))
			continue;
		errno = 0;
		d->context = lpv.open_device(list[i]);
		d->soft = is_soft(list[i]);
		rc = d->context ? 0 : failed();
		break;
	}
	lpv.free_device_list(list);
	if (rc)
		return rc;
	d->events = d->context->async_fd;
	if (fcntl(d->events, F_SETFL, fcntl(d->events, F_GETFL) | O_NONBLOCK) < 0 ||
	    !(d->pd = lpv.alloc_pd(d->context))) {
		rc = failed();
		lpv.close_device(d->context);
	}
	return rc;
}

int lpv_event(struct lpv_device *d, int *kind, uint32_t *number)
{
	struct ibv_async_event e;
	errno = 0;
	if (lpv.get_async_event(d->context, &e))
		return failed();
	*kind = LPV_OTHER;
	*number = 0;
	switch (e.event_type) {
	case IBV_EVENT_DEVICE_FATAL: *kind = LPV_DEVICE_FATAL; break;
	case IBV_EVENT_CQ_ERR: *kind = LPV_CQ_FAILED; break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		*kind = LPV_QUEUE_FAILED;
		*number = e.element.qp->qp_num;
		break;
	case IBV_EVENT_PORT_ERR: *kind = LPV_PORT_DOWN; break;
	case IBV_EVENT_PORT_ACTIVE: *kind = LPV_PORT_UP; break;
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_GID_CHANGE: *kind = LPV_ADDRESS_MOVED; break;
	default: break;
	}
	if (*kind >= LPV_PORT_DOWN)
		*number = e.element.port_num;
	lpv.ack_async_event(&e);
	return 0;
}

int lpv_close(struct lpv_device *d)
{
	int rc = lpv.dealloc_pd(d->pd);
	int rc2 = lpv.close_device(d->context);
	return rc ? rc : rc2;
}

int lpv_port(struct lpv_device *d, int port, struct lpv_port *p)
{
	struct ibv_port_attr attr;
	memset(&attr, 0, sizeof attr);
	int rc = lpv.query_port(d->context, port, &attr);
	if (rc)
		return rc < 0 ? failed() : rc;
	p->state = attr.state;
	p->mtu = 128 << attr.active_mtu;
	p->lid = attr.lid;
	p->ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET;
	p->gids = attr.gid_tbl_len;
	return 0;
}

int lpv_gid(struct lpv_device *d, int port, int index, uint8_t gid[16], int *type)
{
	struct ibv_gid_entry entry;
	memset(&entry, 0, sizeof entry);
	errno = 0;
	int rc = lpv.query_gid_ex(d->context, port, index, &entry, 0, sizeof entry);
	if (rc == ENODATA || rc == -ENODATA || (rc == -1 && errno == ENODATA)) { /* not in use */
		*type = 0;
		return 0;
	}
	if (rc)
		return rc > 0 ? rc : rc < -1 ? -rc : failed();
	memcpy(gid, entry.gid.raw, 16);
	switch (entry.gid_type) {
	case IBV_GID_TYPE_IB: *type = 1; break;
	case IBV_GID_TYPE_ROCE_V1: *type = 2; break;
	default: *type = 3;
	}
	return 0;
}

enum { BY_PEERS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE };

/* The result of a registration that has returned mr. */
static int registered(struct ibv_mr *mr, struct lpv_region *r)
{
	if (!mr)
		return failed();
	*r = (struct lpv_region){mr, mr->lkey, mr->rkey};
	return 0;
}

int lpv_register(struct lpv_device *d, void *at, size_t size, bool written, struct lpv_region *r)
{
	errno = 0;
	return registered(lpv.reg_mr(d->pd, at, size, written ? BY_PEERS : 0), r);
}

int lpv_register_buf(struct lpv_device *d, int fd, uint64_t offset, size_t size, uint64_t at, struct lpv_region *r)
{
	if (!lpv.reg_dmabuf_mr)
		return ENOTSUP;
	errno = 0;
	return registered(lpv.reg_dmabuf_mr(d->pd, offset, size, at, fd, BY_PEERS), r);
}

int lpv_deregister(struct lpv_region *r) { return lpv.dereg_mr(r->mr); }
