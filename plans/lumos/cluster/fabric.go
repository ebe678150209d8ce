package cluster

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"lightpath/plans/lumos"
	"lightpath/plans/lumos/place"
)

// Kind is how the GPUs of a cluster are joined.
type Kind int

// The kinds of fabrics.
const (
	Best  Kind = iota // one switch for all GPUs; too large to build
	Clos              // packet switches without over-subscription
	Lumos             // pods of packet switches, a core of optical circuit switches
)

// Routing is how a flow between packet switches chooses among equal paths.
type Routing int

// The routings.
const (
	// Probe compares the load of some paths when a job starts, and takes the least loaded.
	Probe Routing = iota
	// ECMP takes a path by a hash.
	ECMP
	// Central lets a controller that knows all flows of a job colour those inside pods, so that they share no link.
	// Only for [Lumos].
	Central
)

var routingNames = [...]string{"probe", "ecmp", "central"}

func (r Routing) String() string { return routingNames[r] }

// ParseRouting returns the routing of a name.
func ParseRouting(name string) (Routing, error) {
	if i := slices.Index(routingNames[:], name); i >= 0 {
		return Routing(i), nil
	}
	return 0, fmt.Errorf("%w: routing %q is none of %s", ErrInput, name, strings.Join(routingNames[:], ", "))
}

// Fabric describes the simulated cluster.
type Fabric struct {
	Name       string
	Kind       Kind
	GPUs       int
	ServerGPUs int
	ChipTbps   float64 // capacity of a packet switch
	PortGbps   float64 // of a GPU, and of every link
	Tiers      int     // of Clos: 3 or more
	Tau        int     // of Lumos
	Routing    Routing
	// DarkSeconds is how long a moved circuit carries nothing: the time of the switch and of routing.
	DarkSeconds float64
}

// ocsPorts is the number of ports of an OCS of Lumos.
const ocsPorts = 512

// referenceGbps is the rate of a port for which the shares of jobs are stated.
const referenceGbps = 1600

// portRates are the rates of existing ports, fastest first.
var portRates = []float64{1600, 800, 400, 200, 100}

// ParseFabric returns the fabric of a name, for the given GPUs in servers of 8: best, clos-TIERS-CHIP, or
// lumos-TAU-CHIP, with the chip in Tb/s, as in lumos-1-25.6. Ports are the fastest with which the fabric reaches the
// size.
func ParseFabric(name string, gpus int) (Fabric, error) {
	f := Fabric{Name: name, GPUs: gpus, ServerGPUs: 8, PortGbps: portRates[0], DarkSeconds: 2.38}
	if gpus < 1 {
		return f, fmt.Errorf("%w: %d GPUs", ErrInput, gpus)
	}
	if name == "best" {
		return f, nil
	}
	bad := fmt.Errorf("%w: fabric %q is none of best, clos-TIERS-CHIP, lumos-TAU-CHIP", ErrInput, name)
	part := strings.Split(name, "-")
	if len(part) != 3 {
		return f, bad
	}
	n, err := strconv.Atoi(part[1])
	if err != nil {
		return f, bad
	}
	switch part[0] {
	case "clos":
		f.Kind, f.Tiers = Clos, n
	case "lumos":
		f.Kind, f.Tau, f.Routing = Lumos, n, Central
	default:
		return f, bad
	}
	if f.ChipTbps, err = strconv.ParseFloat(part[2], 64); err != nil || !(f.ChipTbps > 0) || math.IsInf(f.ChipTbps, 0) {
		return f, bad
	}
	var first error
	for _, f.PortGbps = range portRates {
		if err = f.Check(); err == nil {
			return f, nil
		}
		if first == nil {
			first = err
		}
	}
	return f, fmt.Errorf("%w; slower ports do not help: %w", first, err)
}

// radix returns half the ports of a packet switch.
func (f *Fabric) radix() int { return int(f.ChipTbps*1000/f.PortGbps+1e-9) / 2 }

// Check returns what is wrong with a fabric.
func (f *Fabric) Check() error {
	if f.GPUs < 1 || f.GPUs%f.ServerGPUs != 0 {
		return fmt.Errorf("%w: %s: %d GPUs are no multiple of %d, those of a server", ErrInput, f.Name, f.GPUs, f.ServerGPUs)
	}
	if !(f.DarkSeconds >= 0) || math.IsInf(f.DarkSeconds, 0) {
		return fmt.Errorf("%w: %s: circuits that are moved are dark for %v s", ErrInput, f.Name, f.DarkSeconds)
	}
	var err error
	switch f.Kind {
	case Clos:
		err = f.checkClos()
	case Lumos:
		err = f.checkLumos()
	}
	if err != nil {
		return err
	}
	return f.Shape().Check()
}

// checkLeaves returns what is wrong with the packet switches of a fabric.
func (f *Fabric) checkLeaves() error {
	k := f.radix()
	if k < f.ServerGPUs || k%f.ServerGPUs != 0 {
		return fmt.Errorf("%w: %s: a leaf has %d ports of %v Gb/s for GPUs, which is no whole number of servers", ErrInput,
			f.Name, k, f.PortGbps)
	}
	return nil
}

func (f *Fabric) checkLumos() error {
	if err := f.checkLeaves(); err != nil {
		return err
	}
	if f.Tau != 1 && f.Tau != 2 {
		return fmt.Errorf("%w: %s: tau %d is neither 1 nor 2", ErrInput, f.Name, f.Tau)
	}
	if pod := f.radix() * f.radix() / f.Tau; f.GPUs%pod != 0 {
		return fmt.Errorf("%w: %s: %d GPUs are no whole number of pods of %d", ErrInput, f.Name, f.GPUs, pod)
	}
	if err := f.Core().Validate(); err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return nil
}

func (f *Fabric) checkClos() error {
	if f.Routing == Central {
		return fmt.Errorf("%w: %s: routing %v is of fabrics with an optical core", ErrInput, f.Name, f.Routing)
	}
	if err := f.checkLeaves(); err != nil {
		return err
	}
	if f.Tiers < 3 || f.Tiers > 6 {
		return fmt.Errorf("%w: %s: %d tiers; want 3 to 6", ErrInput, f.Name, f.Tiers)
	}
	k := f.radix()
	most, part := 2, k
	for range f.Tiers - 1 {
		most *= k
	}
	most *= k
	for range f.Tiers - 2 {
		part *= k
	}
	if f.GPUs > most || f.GPUs > part && f.GPUs%part != 0 || f.GPUs%(k*k) != 0 {
		return fmt.Errorf("%w: %s: with ports of %v Gb/s it has at most %d GPUs, in parts of %d; not %d", ErrInput, f.Name,
			f.PortGbps, most, part, f.GPUs)
	}
	return nil
}

// Shape returns how servers nest in the fabric.
func (f *Fabric) Shape() place.Shape {
	s := place.Shape{ServerGPUs: f.ServerGPUs}
	servers := f.GPUs / f.ServerGPUs
	k := 0
	switch f.Kind {
	case Best:
		s.Nest = []int{servers, 1}
		return s
	case Lumos:
		k = f.radix()
		s.Nest = []int{k / f.ServerGPUs, k / f.Tau}
	case Clos:
		k = f.radix()
		s.Nest = []int{k / f.ServerGPUs}
		for range f.Tiers - 2 {
			s.Nest = append(s.Nest, k)
		}
	}
	inside := 1
	for i, n := range s.Nest {
		if inside*n > servers { // fewer than a part of the highest tier
			s.Nest = append(s.Nest[:i:i], servers/inside)
			return s
		}
		inside *= n
	}
	s.Nest = append(s.Nest, servers/inside)
	return s
}

// Core returns the parameters of the optical core of a [Lumos] fabric.
func (f *Fabric) Core() lumos.Fabric {
	k := f.radix()
	return lumos.Fabric{Pods: f.GPUs * f.Tau / (k * k), KLeaf: k, KSpine: k, Tau: f.Tau, KOCS: ocsPorts}
}

// rate returns the rate of a port, in units of the reference.
func (f *Fabric) rate() float64 { return f.PortGbps / referenceGbps }

// FabricsOfThePaper are those of its large simulations.
func FabricsOfThePaper() []string {
	return slices.Clone([]string{"best", "lumos-2-51.2", "lumos-1-51.2", "lumos-1-25.6", "clos-3-51.2", "clos-4-25.6",
		"clos-3-25.6"})
}
