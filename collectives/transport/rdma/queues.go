package rdma

import (
	"errors"
	"fmt"
	"unsafe"

	"lightpath/collectives/transport/internal/dma"
)

// Queues are the queue pairs of a rank on one plane, their completion queue and the memory of their rings.
type Queues struct {
	CQ     CQ
	QPs    []QP   // by rank; nil for the rank itself
	Memory []byte // rings that the peers write, by rank, then rings that this rank sends from, by rank
	Key    uint32 // of the second half of Memory

	ring    int // size of a ring in bytes
	regions [2]Region
}

// Open creates the queues for rings of a size, and posts all receives. o says how many requests a queue pair has. Open
// returns the address of the rank. After an error, the caller calls Close. The caller unmaps Memory.
func (q *Queues) Open(po *PlaneOptions, rank, ranks, ring int, o QPOptions) (a PlaneAddr, err error) {
	if a, err = po.address(); err != nil {
		return a, err
	}
	half := ranks * ring
	if q.Memory, err = dma.Map(2 * half); err != nil {
		return a, err
	}
	q.ring = ring
	for i := range q.regions {
		if q.regions[i], err = po.Device.Register(q.Memory[i*half:][:half], i == 0); err != nil {
			return a, fmt.Errorf("register %d bytes (RLIMIT_MEMLOCK?): %w", half, err)
		}
	}
	_, a.Key = q.regions[0].Keys()
	q.Key, _ = q.regions[1].Keys()
	a.Base = uint64(uintptr(unsafe.Pointer(&q.Memory[0])))
	if q.CQ, err = po.Device.NewCQ(max(1, (ranks-1)*(o.Sends+o.Recvs))); err != nil {
		return a, fmt.Errorf("completion queue: %w", err)
	}
	o.CQ, o.Port = q.CQ, po.Port
	a.QPs, q.QPs = make([]uint32, ranks), make([]QP, ranks)
	for r := range ranks {
		if r == rank {
			continue
		}
		qp, err := po.Device.NewQP(o)
		if err == nil {
			q.QPs[r], a.QPs[r] = qp, qp.Number()
			err = qp.PostRecv(RecvID(r), o.Recvs)
		}
		if err != nil {
			return a, fmt.Errorf("queue pair to rank %d: %w", r, err)
		}
	}
	return a, nil
}

// Rings returns the ring that a rank writes, and the ring from which this rank sends to it.
func (q *Queues) Rings(rank int) (in, out []byte) {
	return q.Memory[rank*q.ring:][:q.ring], q.Memory[(len(q.QPs)+rank)*q.ring:][:q.ring]
}

// Close closes the queue pairs, the completion queue and the regions. Idempotent.
func (q *Queues) Close() (err error) {
	for r, qp := range q.QPs {
		if qp != nil {
			err = errors.Join(err, qp.Close())
			q.QPs[r] = nil
		}
	}
	if q.CQ != nil {
		err = errors.Join(err, q.CQ.Close())
		q.CQ = nil
	}
	for i, r := range q.regions {
		if r != nil {
			err = errors.Join(err, r.Close())
			q.regions[i] = nil
		}
	}
	return err
}
