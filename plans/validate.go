package plans

import (
	"fmt"
	"math"

	"lightpath/internal/decode"
	"lightpath/plans/circuit"
)

type namedNumber struct {
	name  string
	value float64
}

// numbers lists the rates and times of p under their names in the file.
func (p *Problem) numbers() []namedNumber {
	return []namedNumber{
		{"bandwidth_gbps", p.BandwidthGbps}, {"alpha_us", p.AlphaUS}, {"hop_us", p.HopUS},
		{"reconfig_us", p.ReconfigUS}, {"reconfig_per_port_us", p.ReconfigPerPort},
	}
}

// Validate reports the first rule of the problem file format that p breaks, naming field
// and position; the error wraps [ErrProblem]. A problem without Steps and without Demand
// is a collective in which nothing is sent. That a problem is valid does not mean that it
// can be solved.
func (p *Problem) Validate() error {
	if err := p.validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrProblem, err)
	}
	return nil
}

func (p *Problem) validate() error {
	switch {
	case p.Version != Version:
		return decode.At("version", "%d is not %d", p.Version, Version)
	case p.Ranks < 1 || p.Ranks > MaxRanks:
		return decode.At("ranks", "%d is outside 1..%d", p.Ranks, MaxRanks)
	case p.Planes < 1 || p.Planes > MaxPlanes:
		return decode.At("planes", "%d is outside 1..%d", p.Planes, MaxPlanes)
	case p.BandwidthGbps == 0:
		return decode.At("bandwidth_gbps", "must be above 0")
	case p.Steps != nil && p.Demand != nil:
		return decode.At("demand", "a problem has steps or a demand, not both")
	}
	for _, f := range p.numbers() {
		if err := decode.Amount(f.name, f.value); err != nil {
			return err
		}
	}
	switch p.Circuits {
	case Simplex, Duplex:
	case Interleaved:
		if p.Planes%2 != 0 {
			return decode.At("planes", "%d is odd: interleaved planes come in pairs", p.Planes)
		}
	default:
		return decode.At("circuits", "%q is not simplex, duplex or interleaved", p.Circuits)
	}
	if p.Initial != nil {
		if err := p.validateMaps("initial", p.Initial); err != nil {
			return err
		}
	}
	if p.Final.Kind == FinalGiven {
		if err := p.validateMaps("final", p.Final.Maps); err != nil {
			return err
		}
	}
	if p.Demand != nil {
		return p.validateDemand()
	}
	return p.validateSteps()
}

func (p *Problem) validateMaps(path string, maps []circuit.Permutation) error {
	if len(maps) != p.Planes {
		return decode.At(path, "has %d maps, want one for each of %d planes", len(maps), p.Planes)
	}
	for j, m := range maps {
		if err := m.Validate(p.Ranks); err != nil {
			return positioned(fmt.Sprintf("%s[%d]", path, j), err)
		}
	}
	for j := range maps {
		if err := p.Circuits.Holds(maps, j); err != nil {
			return decode.At(fmt.Sprintf("%s[%d]", path, j), "%w", err)
		}
	}
	return nil
}

// Holds reports why plane j cannot have the map maps[j] on planes of kind k. maps lists the maps of all planes. A
// duplex plane takes involutions only, and an interleaved one the inverse of its partner's map.
func (k CircuitKind) Holds(maps []circuit.Permutation, j int) error {
	switch k {
	case Duplex:
		for r, s := range maps[j] {
			if s != circuit.Dark && maps[j][s] != r {
				return fmt.Errorf("circuit %d -> %d has no %d -> %d: a duplex plane holds involutions only", r, s, s, r)
			}
		}
	case Interleaved:
		own, other := maps[j], maps[j^1]
		for r, s := range own {
			if s != circuit.Dark && other[s] != r {
				return fmt.Errorf("circuit %d -> %d has no %d -> %d on interleaved plane %d", r, s, s, r, j^1)
			}
		}
	case Simplex:
	}
	return nil
}

// positioned joins path and the message of [circuit.Permutation.Validate], which begins
// with an index where it has one.
func positioned(path string, err error) error {
	if msg := err.Error(); msg[0] == '[' {
		return fmt.Errorf("%s%w", path, err)
	}
	return decode.At(path, "%w", err)
}

func (p *Problem) validateDemand() error {
	if len(p.Demand) != p.Ranks {
		return decode.At("demand", "has %d rows, want %d", len(p.Demand), p.Ranks)
	}
	for r, row := range p.Demand {
		if len(row) != p.Ranks {
			return decode.At(fmt.Sprintf("demand[%d]", r), "has %d entries, want %d", len(row), p.Ranks)
		}
		for s, v := range row {
			if v >= 0 && v <= math.MaxFloat64 {
				continue
			}
			return decode.Amount(fmt.Sprintf("demand[%d][%d]", r, s), v)
		}
	}
	return nil
}

func (p *Problem) validateSteps() error {
	seen := flowSet{n: p.Ranks}
	for i := range p.Steps {
		s := &p.Steps[i]
		path := fmt.Sprintf("steps[%d]", i)
		if err := decode.Amount(path+".bytes", s.Bytes); err != nil {
			return err
		}
		if s.To != nil {
			if s.Flows != nil {
				return decode.At(path+".flows", "a step has to or flows, not both")
			}
			if err := s.To.Validate(p.Ranks); err != nil {
				return positioned(path+".to", err)
			}
			continue
		}
		if err := seen.check(path, s.Flows); err != nil {
			return err
		}
	}
	return nil
}

// flowSet finds duplicate flows with a bitmap that all steps share.
type flowSet struct {
	n    int
	bits []uint64
}

func (f *flowSet) check(path string, flows [][2]int) error {
	if f.bits == nil {
		f.bits = make([]uint64, (f.n*f.n+63)/64)
	}
	done := 0
	defer func() {
		for _, flow := range flows[:done] {
			f.bits[(flow[0]*f.n+flow[1])/64] = 0
		}
	}()
	for i, flow := range flows {
		s, d := flow[0], flow[1]
		switch {
		case s < 0 || s >= f.n || d < 0 || d >= f.n:
			return decode.At(fmt.Sprintf("%s.flows[%d]", path, i), "flow %d -> %d leaves ranks 0..%d", s, d, f.n-1)
		case s == d:
			return decode.At(fmt.Sprintf("%s.flows[%d]", path, i), "flow %d -> %d is no transfer", s, d)
		}
		word, bit := (s*f.n+d)/64, uint64(1)<<((s*f.n+d)%64)
		if f.bits[word]&bit != 0 {
			return decode.At(fmt.Sprintf("%s.flows[%d]", path, i), "flow %d -> %d is listed twice", s, d)
		}
		f.bits[word] |= bit
		done = i + 1
	}
	return nil
}
