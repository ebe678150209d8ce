package emulator

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"lightpath/internal/shmring"
)

// LabelSize is the size in bytes of the frame header at the beginning of every slot's payload. The switch records the
// header in its log, and does not count it for the rate of the circuit. Data follows.
const LabelSize = 64

// Defaults of [Config]. A slot holds 8 KiB of data behind its label; a ring of 64 slots then covers a pause of 4 ms of
// the host at 1 Gb/s.
const (
	DefaultMTU   = 8192 + LabelSize
	DefaultSlots = 64
)

// PortMemory is a rank's attachment to one plane.
//
// To send, the rank fills a slot of TX (label, then data; at most Client.MTU bytes),
// commits it with the epoch of its circuit as tag, and calls Kick. The switch releases the slot when its last byte has
// left the wire, so TX.Empty means that no frame of this rank is in flight. To receive, the rank consumes RX, whose
// tags are those of the senders, and calls Kick after Release. The switch rings Bell after anything arrived in RX,
// after the plane's state has changed, and when TX has drained to half or is empty.
//
// TX has one producer and RX one consumer: the goroutine that drives the rank.
type PortMemory struct {
	TX, RX *shmring.Ring
	Bell   *shmring.Doorbell // the rank's own, the same for every plane
	Switch *shmring.Doorbell // the switch's; see Kick
	// idle is set while the switch has found TX empty and needs a Kick for the next frame; nil: it always needs one.
	// The switch returns to a ring with frames by itself.
	idle *atomic.Uint32
}

// Kick tells the switch to look at this port's rings. Call it after a Commit, and after a Release that makes room; once
// per batch is enough. It wakes the switch only if that waits for this port; otherwise it costs a few loads.
func (m *PortMemory) Kick() {
	frames := m.idle == nil || m.idle.Load() != 0 && !m.TX.Empty() && m.idle.Swap(0) != 0
	if m.RX.Wanted() || frames {
		m.Switch.Ring()
	}
}

// Layout of a port's memory: a header line, one alarm line per plane, then the rings of
// each plane, TX before RX, on pages of their own.
const (
	portMagic = 0x4c50504d // "LPPM"
	lineSize  = 64
	pageSize  = 4096
)

// geometry holds the sizes of the memory of a port's rings. Both ends compute the layout from it.
type geometry struct {
	planes, slots, mtu int
}

func (g geometry) ringSize() int { return roundUp(shmring.Size(g.slots, g.mtu), pageSize) }
func (g geometry) ringsAt() int  { return roundUp(lineSize*(1+g.planes), pageSize) }
func (g geometry) size() int     { return g.ringsAt() + 2*g.planes*g.ringSize() }

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// portView is one end's view of a port's memory.
type portView struct {
	tx, rx []*shmring.Ring // per plane
	alarms []alarms        // per plane
	idle   []*atomic.Uint32
}

// alarms counts, in the port's memory, the frames of this port that a plane lost. The
// switch writes them before it releases the frame's slot, so a rank that sees TX empty
// sees them too.
type alarms struct {
	lost  [numVerdicts]*atomic.Uint32 // by verdict; the counter of Delivered stays 0
	epoch *atomic.Uint32              // tag of the first frame lost
	gone  *atomic.Uint32              // the destination without a rank of a lost frame
}

// format marks fresh memory as a port's.
func (g geometry) format(mem []byte) {
	for i, v := range []int{portMagic, g.planes, g.slots, g.mtu} {
		word(mem, 4*i).Store(uint32(v))
	}
}

// view makes one end's view of mem, which the other end has formatted.
func (g geometry) view(mem []byte) (*portView, error) {
	if len(mem) < g.size() {
		return nil, fmt.Errorf("emulator: port memory has %d bytes, want %d", len(mem), g.size())
	}
	for i, want := range []int{portMagic, g.planes, g.slots, g.mtu} {
		if got := word(mem, 4*i).Load(); got != uint32(want) {
			return nil, fmt.Errorf("emulator: port memory: header word %d is %d, want %d", i, got, want)
		}
	}
	v := &portView{}
	for p := range g.planes {
		line := lineSize * (1 + p)
		a := alarms{
			epoch: word(mem, line), gone: word(mem, line+lineSize-8),
		}
		for k := range a.lost {
			a.lost[k] = word(mem, line+16+4*k)
		}
		v.alarms, v.idle = append(v.alarms, a), append(v.idle, word(mem, line+lineSize-4))
		at := g.ringsAt() + 2*p*g.ringSize()
		tx, err := shmring.New(mem[at:at+g.ringSize()], g.slots, g.mtu)
		if err != nil {
			return nil, err
		}
		at += g.ringSize()
		rx, err := shmring.New(mem[at:at+g.ringSize()], g.slots, g.mtu)
		if err != nil {
			return nil, err
		}
		v.tx, v.rx = append(v.tx, tx), append(v.rx, rx)
	}
	return v, nil
}

// raise counts a lost frame to port dst, and keeps the tag of the first one.
func (a *alarms) raise(v Verdict, tag uint32, dst int) {
	if a.total() == 0 {
		a.epoch.Store(tag)
	}
	if v == LostVacant {
		a.gone.Store(uint32(dst))
	}
	a.lost[v].Add(1)
}

// total counts the frames lost.
func (a *alarms) total() uint32 {
	var n uint32
	for _, c := range a.lost {
		n += c.Load()
	}
	return n
}

// word views 4 aligned bytes of shared memory.
func word(mem []byte, at int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&mem[at]))
}
