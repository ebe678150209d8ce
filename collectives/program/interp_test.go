package program

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"lightpath/collectives/program/programtest"
	"lightpath/collectives/schedule"
	"lightpath/plans/circuit"
)

// machine runs the programs of all ranks, one instruction at a time in a random valid order, on planes that check
// circuits and epochs. Elements are uint32, added mod 2^32.
type machine struct {
	progs []*Program
	mem   [][schedule.NumBuffers][]byte
	done  [][]bool
	rng   *rand.Rand
	lanes []*plane
	scale uint32
}

// plane is the reference model of a plane: its circuits and the epoch of each.
type plane struct {
	packet bool
	epoch  uint32
	to     circuit.Permutation
	made   []uint32
	posted map[uint32]map[int]bool // by epoch; a post may come before its turn
	inbox  [][]*packet             // per rank, what came in by its circuit, in order
	local  [][][]*packet
}

type packet struct {
	src, dst int
	step     int32
	base     int64
	epoch    uint32
	data     []byte
}

func newMachine(progs []*Program, c *programtest.Case, inPlace bool, seed uint64) *machine {
	m := &machine{progs: progs, rng: rand.New(rand.NewPCG(seed, 1)), scale: 3}
	n := len(progs)
	for r, p := range progs {
		var mem [schedule.NumBuffers][]byte
		mem[schedule.Input], mem[schedule.Output] = c.Buffers(r, inPlace)
		mem[schedule.Scratch] = make([]byte, p.ScratchBytes)
		for i := range mem[schedule.Scratch] {
			mem[schedule.Scratch][i] = byte(m.rng.Uint32())
		}
		m.mem = append(m.mem, mem)
		m.done = append(m.done, make([]bool, len(p.Code)))
	}
	for j := range progs[0].Lanes {
		pl := &plane{packet: progs[0].Configs == nil, inbox: make([][]*packet, n), local: make([][][]*packet, n),
			posted: map[uint32]map[int]bool{}, made: make([]uint32, n)}
		for r := range pl.local {
			pl.local[r] = make([][]*packet, n)
		}
		if !pl.packet {
			pl.to = progs[0].Configs[j][0].Clone()
		}
		m.lanes = append(m.lanes, pl)
	}
	return m
}

// candidate is an instruction that a rank may run next.
type candidate struct {
	rank int
	id   ID
}

// run executes all instructions in a random order. It reports deadlocks and violations.
func (m *machine) run() error {
	for {
		var can []candidate
		left := 0
		for r, p := range m.progs {
			for id := range p.Code {
				if !m.done[r][id] {
					left++
				}
			}
			for _, id := range p.Local {
				if !m.done[r][id] && m.depsDone(r, id) {
					can = append(can, candidate{r, id})
				}
			}
			for j := range p.Lanes {
				can = m.laneCandidates(r, j, can)
			}
		}
		if left == 0 {
			return m.quiet()
		}
		if len(can) == 0 {
			return fmt.Errorf("deadlock: %d instructions left", left)
		}
		c := can[m.rng.IntN(len(can))]
		if err := m.exec(c.rank, c.id); err != nil {
			return err
		}
	}
}

func (m *machine) quiet() error {
	for j, pl := range m.lanes {
		for r := range pl.inbox {
			for s := range pl.local[r] {
				if len(pl.inbox[r]) > 0 || len(pl.local[r][s]) > 0 {
					return fmt.Errorf("plane %d rank %d: bytes left over", j, r)
				}
			}
		}
	}
	return nil
}

func (m *machine) depsDone(r int, id ID) bool {
	for _, d := range m.progs[r].Code[id].Deps {
		if !m.done[r][d] {
			return false
		}
	}
	return true
}

func (m *machine) laneCandidates(r, j int, can []candidate) []candidate {
	p, pl := m.progs[r], m.lanes[j]
	pl.sort(r)
	busy := map[int32]bool{}
	clear := true // nothing of the lane's TX before this entry is unfinished
	for _, id := range p.Lanes[j].TX {
		if m.done[r][id] {
			continue
		}
		in := &p.Code[id]
		ok := false
		switch in.Kind {
		case Send:
			ok = !busy[in.Peer] && m.depsDone(r, id)
			busy[in.Peer] = true
		case Forward:
			if q := pl.inbox[r]; len(q) > 0 {
				h := q[0]
				ok = h.src == int(in.Peer) && h.dst == int(in.FlowDst) && h.step == in.Step && h.base == in.Base
			}
		case Reconfigure:
			ok = clear && !pl.posted[in.Epoch][r]
		}
		if ok {
			can = append(can, candidate{r, id})
		}
		clear = false
		if in.Kind == Reconfigure {
			break
		}
	}
	seen := map[int32]bool{}
	for _, id := range p.Lanes[j].RX {
		in := &p.Code[id]
		if m.done[r][id] || seen[in.Peer] {
			continue
		}
		seen[in.Peer] = true
		if len(pl.local[r][in.Peer]) > 0 && m.depsDone(r, id) {
			can = append(can, candidate{r, id})
		}
	}
	return can
}

// sort receives the frames for r from its circuit.
func (pl *plane) sort(r int) {
	for len(pl.inbox[r]) > 0 && pl.inbox[r][0].dst == r {
		f := pl.inbox[r][0]
		pl.inbox[r] = pl.inbox[r][1:]
		pl.local[r][f.src] = append(pl.local[r][f.src], f)
	}
}

func (m *machine) bytes(r int, g Segment) []byte { return m.mem[r][g.Buf][g.Off : g.Off+g.Len] }

func (m *machine) exec(r int, id ID) error {
	in := &m.progs[r].Code[id]
	switch in.Kind {
	case Copy, LocalReduce:
		for i := range in.Src {
			m.local(in, m.bytes(r, in.Dst[i]), m.bytes(r, in.Src[i]))
		}
	case Send:
		f := &packet{src: r, dst: int(in.Peer), step: in.Step, base: in.Base, epoch: in.Epoch}
		for _, g := range in.Src {
			f.data = append(f.data, m.bytes(r, g)...)
		}
		if int64(len(f.data)) != in.Bytes {
			return fmt.Errorf("rank %d instruction %d: %d bytes of %d", r, id, len(f.data), in.Bytes)
		}
		if err := m.emit(r, int(in.Plane), f); err != nil {
			return err
		}
	case Forward:
		pl := m.lanes[in.Plane]
		f := pl.inbox[r][0]
		pl.inbox[r] = pl.inbox[r][1:]
		if int64(len(f.data)) != in.Bytes {
			return fmt.Errorf("rank %d instruction %d: forwards %d bytes of %d", r, id, len(f.data), in.Bytes)
		}
		f.epoch = in.Epoch
		if err := m.emit(r, int(in.Plane), f); err != nil {
			return err
		}
	case Recv, RecvReduce:
		if err := m.recv(r, in); err != nil {
			return fmt.Errorf("rank %d instruction %d: %w", r, id, err)
		}
	case Reconfigure:
		return m.reconfigure(r, id)
	}
	m.done[r][id] = true
	return nil
}

func (m *machine) local(in *Instruction, dst, src []byte) {
	if in.Kind == LocalReduce {
		programtest.AddInto(dst, src)
	} else {
		copy(dst, src)
	}
	for i := 0; in.Scale && i < len(dst); i += 4 {
		binary.LittleEndian.PutUint32(dst[i:], binary.LittleEndian.Uint32(dst[i:])*m.scale)
	}
}

// emit sends a frame on the circuit from r.
func (m *machine) emit(r, j int, f *packet) error {
	pl := m.lanes[j]
	next := f.dst
	if !pl.packet {
		next = pl.to[r]
		if next == circuit.Dark || pl.posted[pl.epoch][r] {
			return fmt.Errorf("plane %d: rank %d sends into the dark", j, r)
		}
		if f.epoch != pl.made[r] {
			return fmt.Errorf("plane %d: rank %d sends with epoch %d on a circuit of epoch %d", j, r, f.epoch, pl.made[r])
		}
	}
	pl.inbox[next] = append(pl.inbox[next], f)
	return nil
}

func (m *machine) recv(r int, in *Instruction) error {
	pl := m.lanes[in.Plane]
	f := pl.local[r][in.Peer][0]
	pl.local[r][in.Peer] = pl.local[r][in.Peer][1:]
	if f.step != in.Step || f.base != in.Base || int64(len(f.data)) != in.Bytes || f.epoch != in.Epoch {
		return fmt.Errorf("frame step %d base %d len %d epoch %d, want step %d base %d len %d epoch %d",
			f.step, f.base, len(f.data), f.epoch, in.Step, in.Base, in.Bytes, in.Epoch)
	}
	data := f.data
	for i, g := range in.Dst {
		if in.Init != nil && in.Init[i].Len > 0 {
			copy(m.bytes(r, g), m.bytes(r, in.Init[i])) // of the same length, or it fails below
		}
		if in.Kind == RecvReduce {
			programtest.AddInto(m.bytes(r, g), data[:g.Len])
		} else {
			copy(m.bytes(r, g), data)
		}
		data = data[g.Len:]
	}
	return nil
}

// reconfigure posts a request. The last request of the changing ports switches the plane.
func (m *machine) reconfigure(r int, id ID) error {
	in := &m.progs[r].Code[id]
	pl := m.lanes[in.Plane]
	if !in.Moves {
		m.done[r][id] = true
		return nil
	}
	if pl.epoch > in.Epoch {
		return fmt.Errorf("rank %d posts for epoch %d at %d", r, in.Epoch, pl.epoch)
	}
	if pl.posted[in.Epoch] == nil {
		pl.posted[in.Epoch] = map[int]bool{}
	}
	pl.posted[in.Epoch][r] = true
	for m.change(int(in.Plane)) {
	}
	return nil
}

// change switches a plane if all changing ports have posted.
func (m *machine) change(j int) bool {
	pl := m.lanes[j]
	configs := m.progs[0].Configs[j]
	if int(pl.epoch)+1 >= len(configs) {
		return false
	}
	target := configs[pl.epoch+1]
	for p := range target {
		if target[p] != pl.to[p] && !pl.posted[pl.epoch][p] {
			return false
		}
	}
	pl.epoch++
	for p := range target {
		if target[p] != pl.to[p] {
			pl.made[p] = pl.epoch
			for _, id := range m.progs[p].Lanes[j].TX {
				if o := &m.progs[p].Code[id]; o.Kind == Reconfigure && o.Config == int32(pl.epoch) {
					m.done[p][id] = true
				}
			}
		}
	}
	pl.to = target.Clone()
	return true
}
