package ticket

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"lightpath/plans"
	"lightpath/plans/circuit"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/planning"
)

// Row is a rank's post of a group of sends and receives: its part of a demand matrix. Messages of a rank to itself are
// not in it.
type Row struct {
	Packet       bool // the rank asks for packet planes: its messages are too many to list
	Sends, Recvs []Message
}

// Message is one message of a row.
type Message struct {
	Peer   int
	Number uint64 // within its pair and direction, over the life of the communicator
	Bytes  int64
}

// The encoding, little endian: sends u32, receives u32, then per message, sends first, peer u16,
// number u64, bytes u64. Nothing at all is a row that asks for packet planes.
const (
	rowHeader     = 8
	rowEntry      = 18
	maxRowMessage = 1 << 56 // bytes
)

// AppendRow encodes r; a row that is too large becomes one that asks for packet planes.
func AppendRow(b []byte, r *Row) []byte {
	if r.Packet || rowHeader+rowEntry*(len(r.Sends)+len(r.Recvs)) > control.MaxRow {
		return b
	}
	le := binary.LittleEndian
	b = le.AppendUint32(b, uint32(len(r.Sends)))
	b = le.AppendUint32(b, uint32(len(r.Recvs)))
	for _, list := range [2][]Message{r.Sends, r.Recvs} {
		for _, m := range list {
			b = le.AppendUint16(b, uint16(m.Peer))
			b = le.AppendUint64(b, m.Number)
			b = le.AppendUint64(b, uint64(m.Bytes))
		}
	}
	return b
}

// DecodeRow reads the row of a rank.
func DecodeRow(b []byte, rank, ranks int) (*Row, error) {
	if len(b) == 0 {
		return &Row{Packet: true}, nil
	}
	le := binary.LittleEndian
	if len(b) < rowHeader {
		return nil, fmt.Errorf("%w: row of %d bytes", control.ErrMessage, len(b))
	}
	sends, recvs := int(le.Uint32(b)), int(le.Uint32(b[4:]))
	if len(b) != rowHeader+rowEntry*(sends+recvs) {
		return nil, fmt.Errorf("%w: row of %d bytes for %d sends and %d receives", control.ErrMessage, len(b), sends, recvs)
	}
	list := make([]Message, sends+recvs)
	for i := range list {
		e := b[rowHeader+rowEntry*i:]
		m := Message{Peer: int(le.Uint16(e)), Number: le.Uint64(e[2:]), Bytes: int64(le.Uint64(e[10:]))}
		if m.Peer >= ranks || m.Peer == rank || m.Bytes < 0 || m.Bytes > maxRowMessage {
			return nil, fmt.Errorf("%w: %d bytes between rank %d and %d in a row", control.ErrMessage, m.Bytes, rank, m.Peer)
		}
		list[i] = m
	}
	return &Row{Sends: list[:sends:sends], Recvs: list[sends:]}, nil
}

// Match combines the rows of all ranks. It returns the bytes that pairs exchange, in order of source and destination,
// and whether every send meets its receive. It returns an error if the two ends of a message differ in size.
func Match(rows []*Row) (pairs []planning.Pair, closed bool, err error) {
	var sends, recvs []endpoint
	for r, row := range rows {
		for _, m := range row.Sends {
			sends = append(sends, endpoint{r, m.Peer, m.Number, m.Bytes})
		}
		for _, m := range row.Recvs {
			recvs = append(recvs, endpoint{m.Peer, r, m.Number, m.Bytes})
		}
	}
	slices.SortFunc(sends, endpoint.compare)
	slices.SortFunc(recvs, endpoint.compare)
	closed = len(sends) == len(recvs)
	for i, k := 0, 0; i < len(sends) && k < len(recvs); {
		s, r := &sends[i], &recvs[k]
		switch order := s.compare(*r); {
		case order < 0:
			i, closed = i+1, false
			continue
		case order > 0:
			k, closed = k+1, false
			continue
		case s.bytes != r.bytes:
			return nil, false, fmt.Errorf("shim: message %d from rank %d to rank %d: rank %d sends %d bytes, rank %d "+
				"receives %d: %w",
				s.number, s.src, s.dst, s.src, s.bytes, s.dst, r.bytes, errdefs.ErrMismatch)
		}
		i, k = i+1, k+1
		if n := len(pairs); n > 0 && pairs[n-1].Src == s.src && pairs[n-1].Dst == s.dst {
			pairs[n-1].Bytes += s.bytes
		} else {
			pairs = append(pairs, planning.Pair{Src: s.src, Dst: s.dst, Bytes: s.bytes})
		}
	}
	return pairs, closed, nil
}

// endpoint is one end of a message, as one rank knows it.
type endpoint struct {
	src, dst int
	number   uint64
	bytes    int64
}

// compare orders messages without their sizes.
func (e endpoint) compare(o endpoint) int {
	return cmp.Or(cmp.Compare(e.src, o.src), cmp.Compare(e.dst, o.dst), cmp.Compare(e.number, o.number))
}

// The encoding of a plan of holds, little endian:
//
//	ranks u16, planes u8, length of the planner's name u8, the name, CCT in us f64
//	per plane  number of holds u32; per hold its duration in us f64 and its map, a u16 per rank
//
// A plan file takes about ten times the bytes. Reading a plan for one call must not take longer than running it.
const holdsHeader = 12

// EncodeHolds encodes the holds of a plan.
func EncodeHolds(ranks int, p *plans.Plan) []byte {
	le := binary.LittleEndian
	b := le.AppendUint16(nil, uint16(ranks))
	b = append(b, byte(len(p.Planes)), byte(len(p.Planner)))
	b = append(b, p.Planner...)
	b = le.AppendUint64(b, math.Float64bits(p.CCTUS))
	for _, entries := range p.Planes {
		at := len(b)
		b = le.AppendUint32(b, 0)
		for i := range entries {
			e := &entries[i]
			if e.Kind != plans.Hold {
				continue
			}
			le.PutUint32(b[at:], le.Uint32(b[at:])+1)
			b = le.AppendUint64(b, math.Float64bits(e.EndUS-e.StartUS))
			for _, to := range e.To {
				b = le.AppendUint16(b, uint16(to)) // Dark is 0xffff
			}
		}
	}
	return b
}

// DecodeHolds reads a plan of holds for so many ranks and planes. Its times do not count the
// reconfigurations between the holds.
func DecodeHolds(b []byte, ranks, planes int) (*plans.Plan, error) {
	le := binary.LittleEndian
	bad := func(what string) error { return fmt.Errorf("%w: plan of holds: %s", control.ErrMessage, what) }
	if len(b) < holdsHeader || len(b) < holdsHeader+int(b[3]) {
		return nil, bad("too short")
	}
	if int(le.Uint16(b)) != ranks || int(b[2]) != planes {
		return nil, bad(fmt.Sprintf("for %d ranks and %d planes instead of %d and %d", le.Uint16(b), b[2], ranks, planes))
	}
	name := int(b[3])
	p := &plans.Plan{Version: plans.Version, Planner: string(b[4 : 4+name]), Planes: make([][]plans.Entry, planes)}
	p.CCTUS = math.Float64frombits(le.Uint64(b[4+name:]))
	b = b[holdsHeader+name:]
	size := 8 + 2*ranks
	for j := range p.Planes {
		if len(b) < 4 {
			return nil, bad("too short")
		}
		n := int(le.Uint32(b))
		if b = b[4:]; n > len(b)/size {
			return nil, bad(fmt.Sprintf("%d holds in %d bytes", n, len(b)))
		}
		now := 0.0
		for range n {
			us := math.Float64frombits(le.Uint64(b))
			to := make(circuit.Permutation, ranks)
			for r := range to {
				to[r] = int(int16(le.Uint16(b[8+2*r:])))
			}
			b = b[size:]
			if err := to.Validate(ranks); err != nil || !(us >= 0 && now+us < math.MaxFloat64) {
				return nil, bad(fmt.Sprintf("plane %d: a hold of %v us on %v", j, us, to))
			}
			p.Planes[j] = append(p.Planes[j], plans.Entry{Kind: plans.Hold, To: to, StartUS: now, EndUS: now + us})
			now += us
		}
	}
	if len(b) > 0 {
		return nil, bad("too long")
	}
	return p, nil
}
