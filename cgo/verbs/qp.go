package verbs

// #include "verbs.h"
import "C"

import (
	"unsafe"

	"lightpath/collectives/transport/rdma"
)

// qp is an [rdma.QP].
type qp struct{ q C.struct_lpv_qp }

func (d *device) NewQP(o rdma.QPOptions) (rdma.QP, error) {
	q := &qp{C.struct_lpv_qp{inlined: C.int(o.Inline)}}
	rc := C.lpv_qp(&d.d, o.CQ.(*cq).c.cq, C._Bool(o.Unacknowledged), C.int(o.Port), C.int(o.Sends),
		C.int(o.Recvs), &q.q)
	if rc != 0 {
		return nil, wrap(rc, "%s: create queue pair of %d sends and %d receives", d.name, o.Sends, o.Recvs)
	}
	return q, nil
}

func (q *qp) Number() uint32 { return uint32(q.q.number) }
func (q *qp) MaxInline() int { return int(q.q.inlined) }
func (q *qp) Close() error   { return wrap(C.lpv_qp_close(q.q.qp), "destroy QP %#x", q.Number()) }

func (q *qp) Connect(p *rdma.Path) error {
	path := C.struct_lpv_path{
		peer_qpn: C.uint32_t(p.PeerQPN), peer_psn: C.uint32_t(p.PeerPSN), psn: C.uint32_t(p.PSN),
		ethernet: C._Bool(p.Ethernet), port: C.int(p.Port), gid_index: C.int(p.GIDIndex), peer_lid: C.int(p.PeerLID),
		mtu: C.int(p.MTU), traffic_class: C.int(p.TrafficClass), service_level: C.int(p.ServiceLevel),
		timeout: C.int(p.Timeout), retries: C.int(p.Retries),
	}
	for i, b := range p.PeerGID {
		path.peer_gid[i] = C.uint8_t(b)
	}
	return wrap(C.lpv_connect(q.q.qp, &path), "connect")
}

// Hot path: no allocation, one call into C.
func (q *qp) PostSend(r []rdma.SendRequest) (int, error) {
	n := C.int(len(r))
	if rc := C.lpv_post_send(q.q.qp, (*C.struct_lpv_send)(unsafe.Pointer(unsafe.SliceData(r))), &n); rc != 0 {
		return int(n), wrap(rc, "post")
	}
	return int(n), nil
}

// Hot path: no allocation, one call into C.
func (q *qp) PostRecv(id uint64, n int) error {
	return wrap(C.lpv_post_recv(q.q.qp, C.uint64_t(id), C.int(n)), "post receives")
}
