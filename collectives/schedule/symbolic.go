package schedule

import (
	"errors"
	"fmt"
	"strconv"
)

// ErrIncorrect reports a schedule that does not compute its collective. Errors that wrap it name the place.
var ErrIncorrect = errors.New("schedule: incorrect")

// Expr is the expression that computes an element of the result: the contribution of a rank, or Left op Right. Nodes
// are shared and never changed.
type Expr struct {
	Rank        int // of a contribution, whose Left and Right are nil
	Left, Right *Expr
}

// String returns a form such as "((0+1)+2)", in which a number is the contribution of a rank.
func (e *Expr) String() string { return string(e.append(nil)) }

func (e *Expr) append(b []byte) []byte {
	if e.Left == nil {
		return strconv.AppendInt(b, int64(e.Rank), 10)
	}
	b = e.Left.append(append(b, '('))
	b = e.Right.append(append(b, '+'))
	return append(b, ')')
}

// value is the symbolic content of a place: the contributions of a set of ranks to one chunk of Input. Values are
// shared and never changed.
type value struct {
	chunk int      // of Input
	ranks []uint64 // bit set
	expr  *Expr
}

// machine executes a schedule on symbolic values. A place is one chunk of one buffer of one rank. In an in-place call,
// some places of Input and Output are the same.
type machine struct {
	s      *Schedule
	base   []int // first place of (rank, buffer)
	places []*value
	alias  []int // the place that represents a place
	// wrote and read are the clock values at which a place was last written and read.
	wrote, read []int
	pending     []*value
}

// newMachine returns the state before Pre, in which only Input is defined.
func newMachine(s *Schedule, inPlace bool) (*machine, error) {
	if err := s.checkShape(); err != nil {
		return nil, err
	}
	m := &machine{s: s}
	for r := range s.Ranks {
		for b := range NumBuffers {
			m.base = append(m.base, len(m.places))
			m.places = append(m.places, make([]*value, s.BlocksAt(r, b)*s.Sub)...)
		}
	}
	m.wrote, m.read = make([]int, len(m.places)), make([]int, len(m.places))
	m.alias = make([]int, len(m.places))
	for i := range m.alias {
		m.alias[i] = i
	}
	for r := range s.Ranks {
		in, out, blocks := s.InPlace(r)
		for c := 0; inPlace && c < blocks*s.Sub; c++ {
			m.alias[m.index(r, Input)+in*s.Sub+c] = m.index(r, Output) + out*s.Sub + c
		}
	}
	words := (s.Ranks + 63) / 64
	for r := range s.Ranks {
		set := make([]uint64, words)
		set[r/64] = 1 << (r % 64)
		expr := &Expr{Rank: r}
		for c := range s.BlocksAt(r, Input) * s.Sub {
			m.places[m.alias[m.index(r, Input)+c]] = &value{chunk: c, ranks: set, expr: expr}
		}
	}
	return m, nil
}

func (m *machine) index(rank int, b Buffer) int { return m.base[rank*int(NumBuffers)+int(b)] }

// checkShape returns an error for fields with which the machine cannot begin.
func (s *Schedule) checkShape() error {
	if s.Collective >= NumCollectives || s.Ranks < 1 || s.Sub < 1 || s.Root < 0 || s.Root >= s.Ranks {
		return fmt.Errorf("%w: %v of %d ranks, root %d, %d chunks per block",
			ErrIncorrect, s.Collective, s.Ranks, s.Root, s.Sub)
	}
	in, out := s.Collective.IOBlocks(s.Ranks)
	if s.Blocks[Input] != in || s.Blocks[Output] != out || s.Blocks[Scratch] < 0 {
		return fmt.Errorf("%w: buffers of %v blocks", ErrIncorrect, s.Blocks)
	}
	return nil
}

// run executes the whole schedule.
func (m *machine) run() error {
	clock := 1 // number of the current group of parallel moves
	for i := range m.s.Pre {
		if err := m.local(&m.s.Pre[i], clock, true); err != nil {
			return fmt.Errorf("%w: pre move %d: %w", ErrIncorrect, i, err)
		}
		clock++
	}
	for t := range m.s.Steps {
		st := &m.s.Steps[t]
		if err := m.transfers(st.Transfers, clock); err != nil {
			return fmt.Errorf("%w: step %d %w", ErrIncorrect, t, err)
		}
		clock++
		for i := range st.Post {
			if err := m.local(&st.Post[i], clock, false); err != nil {
				return fmt.Errorf("%w: step %d post move %d: %w", ErrIncorrect, t, i, err)
			}
			clock++
		}
	}
	for i := range m.s.Post {
		if err := m.local(&m.s.Post[i], clock, false); err != nil {
			return fmt.Errorf("%w: post move %d: %w", ErrIncorrect, i, err)
		}
		clock++
	}
	return nil
}

// local executes one local move.
func (m *machine) local(mv *Move, clock int, pre bool) error {
	if mv.Src != mv.Dst {
		return fmt.Errorf("a local move from rank %d to rank %d", mv.Src, mv.Dst)
	}
	if pre && (mv.From.Buf != Input || mv.Reduce) {
		return errors.New("not a copy of Input")
	}
	from, to, err := m.resolve(mv, pre)
	if err != nil {
		return err
	}
	m.pending = m.pending[:0]
	if err := m.fetch(mv, from, to); err != nil {
		return err
	}
	return m.store(to, mv.Count, clock, 0)
}

// transfers executes the transfers of a step: first all reads, then all writes.
func (m *machine) transfers(moves []Move, clock int) error {
	m.pending = m.pending[:0]
	starts := make([]int, len(moves))
	for i := range moves {
		mv := &moves[i]
		if mv.Src == mv.Dst {
			return fmt.Errorf("transfer %d: rank %d sends to itself", i, mv.Src)
		}
		from, to, err := m.resolve(mv, false)
		if err == nil {
			err = m.fetch(mv, from, to)
		}
		if err != nil {
			return fmt.Errorf("transfer %d: %w", i, err)
		}
		starts[i] = to
		for c := range mv.Count {
			m.read[m.alias[from+c]] = clock
		}
	}
	done := 0
	for i := range moves {
		if err := m.store(starts[i], moves[i].Count, clock, done); err != nil {
			return fmt.Errorf("transfer %d: %w", i, err)
		}
		done += moves[i].Count
	}
	return nil
}

// resolve returns the first places of a move. It checks everything except their values.
func (m *machine) resolve(mv *Move, pre bool) (from, to int, err error) {
	s := m.s
	if from, err = m.place(mv.Src, mv.From, mv.Count); err != nil {
		return 0, 0, fmt.Errorf("source: %w", err)
	}
	if to, err = m.place(mv.Dst, mv.To, mv.Count); err != nil {
		return 0, 0, fmt.Errorf("destination: %w", err)
	}
	switch {
	case mv.To.Buf == Input:
		err = errors.New("writes Input")
	case mv.From.Chunk%s.Sub != mv.To.Chunk%s.Sub:
		err = errors.New("source and destination have different positions in their blocks")
	case mv.Reduce && !s.Collective.Reduces():
		err = fmt.Errorf("reduces in a %v", s.Collective)
	case !pre && mv.From.Buf == Input && s.Collective.Reduces():
		err = errors.New("reads Input after Pre, without the pre-multiplication")
	}
	return from, to, err
}

func (m *machine) place(rank int, ref Ref, count int) (int, error) {
	if rank < 0 || rank >= m.s.Ranks || ref.Buf >= NumBuffers {
		return 0, fmt.Errorf("no rank %d buffer %d", rank, ref.Buf)
	}
	size := m.s.BlocksAt(rank, ref.Buf) * m.s.Sub
	if count < 1 || ref.Chunk < 0 || ref.Chunk > size-count {
		return 0, fmt.Errorf("chunks %d+%d of %d of rank %d buffer %d", ref.Chunk, count, size, rank, ref.Buf)
	}
	return m.index(rank, ref.Buf) + ref.Chunk, nil
}

// fetch appends the values that a move writes to pending.
func (m *machine) fetch(mv *Move, from, to int) error {
	for c := range mv.Count {
		v := m.places[m.alias[from+c]]
		if v == nil {
			return fmt.Errorf("chunk %d of the source is undefined", c)
		}
		if mv.Reduce {
			sum, err := combine(m.places[m.alias[to+c]], v)
			if err != nil {
				return fmt.Errorf("chunk %d: %w", c, err)
			}
			v = sum
		}
		m.pending = append(m.pending, v)
	}
	return nil
}

// store writes count pending values, beginning with number first.
func (m *machine) store(to, count, clock, first int) error {
	for c := range count {
		at := m.alias[to+c]
		if m.wrote[at] == clock {
			return fmt.Errorf("chunk %d of the destination is written twice in one step", c)
		}
		if m.read[at] == clock {
			return fmt.Errorf("chunk %d of the destination is also sent in this step", c)
		}
		m.wrote[at] = clock
		m.places[at] = m.pending[first+c]
	}
	return nil
}

// combine returns dst op src.
func combine(dst, src *value) (*value, error) {
	if dst == nil {
		return nil, errors.New("destination is undefined")
	}
	if dst.chunk != src.chunk {
		return nil, fmt.Errorf("combines chunk %d into chunk %d", src.chunk, dst.chunk)
	}
	v := &value{chunk: dst.chunk, ranks: make([]uint64, len(dst.ranks)), expr: &Expr{Left: dst.expr, Right: src.expr}}
	for i := range v.ranks {
		if both := dst.ranks[i] & src.ranks[i]; both != 0 {
			return nil, fmt.Errorf("double contribution: %v and %v", dst.expr, src.expr)
		}
		v.ranks[i] = dst.ranks[i] | src.ranks[i]
	}
	return v, nil
}
