package exec

import (
	"fmt"

	"lightpath/collectives/transport"
	"lightpath/collectives/wire"
	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// A plane that forwards sends a frame on when it arrives, over the circuits of that moment. It shares a circuit among
// flows at random. It is stricter than a kernel: it loses each frame whose circuit is not the one of the frame's epoch,
// even if the circuit leads to the right rank.

// transit counts the frames of one operation that have passed through a rank.
type transit struct {
	comm, op uint64
	bytes    int64
}

// steer moves the oldest frame of one flow over the circuit from port p.
func (w *wavelength) steer(p int) {
	i := w.f.rng.IntN(len(w.tx[p]))
	for j := range i {
		if a, b := w.tx[p][j].h, w.tx[p][i].h; a.Src == b.Src && a.Dst == b.Dst {
			i = j
			break
		}
	}
	l := w.tx[p][i]
	w.tx[p] = append(w.tx[p][:i:i], w.tx[p][i+1:]...)
	q, h := w.to[p], l.h
	switch {
	case q == circuit.Dark || h.Epoch < w.made[p] || h.Epoch > w.epoch:
		w.lose(fmt.Errorf("port %d: epoch %d at epoch %d on a circuit of epoch %d: %w", p, h.Epoch, w.epoch, w.made[p],
			ocsctl.ErrFramesLost))
	case q == int(h.Dst):
		w.stash[q][h.Src] = append(w.stash[q][h.Src], l)
	case q == int(h.Src):
		w.lose(fmt.Errorf("port %d: frame to %d has come back: %w", q, h.Dst, ocsctl.ErrFramesLost))
	default:
		t := &w.transit[q]
		if t.comm != h.Comm || t.op != h.Op {
			*t = transit{comm: h.Comm, op: h.Op}
		}
		t.bytes += int64(len(l.data))
		w.tx[q] = append(w.tx[q], l)
	}
}

// steeredPlane is the endpoint of a rank on such a plane. The window is the number of slots of the fabric.
type steeredPlane struct{ p *portPlane }

var _ transport.Steerer = (*steeredPlane)(nil)

func (s *steeredPlane) TrySend(h *wire.Header, payload []byte) (int, error) {
	w, rank := s.p.w, s.p.rank
	w.f.tick()
	if w.open[rank][h.Dst] >= w.f.slots {
		return 0, nil
	}
	w.open[rank][h.Dst]++
	n := min(len(payload), 8*(1+w.f.rng.IntN(w.f.mtu/8)))
	h.Length = uint32(n)
	w.tx[rank] = append(w.tx[rank], light{h: *h, data: append([]byte(nil), payload[:n]...)})
	return n, nil
}

func (s *steeredPlane) Peek(src int) (*wire.Header, []byte, error) { return s.p.Peek(src) }

func (s *steeredPlane) Release(src int) {
	s.p.Release(src)
	s.p.w.open[src][s.p.rank]--
}

func (s *steeredPlane) Drained() (bool, error) { return s.p.Drained() }

func (s *steeredPlane) Transit(comm, op uint64, _ int64) (int64, error) {
	s.p.w.f.tick()
	if t := s.p.w.transit[s.p.rank]; t.comm == comm && t.op == op {
		return t.bytes, nil
	}
	return 0, nil
}
