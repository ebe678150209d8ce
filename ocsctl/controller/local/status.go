package local

import (
	"errors"
	"fmt"
	"strings"

	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// The status page: shared memory, written by the core alone and mapped
// read-only by every client. It holds per plane a sequence counter (odd while being
// written), the plane's fault and its map, and the epochs of ports. So clients see a switch and its map without a
// system call.
const (
	statusSeq    = 0
	statusFault  = 4
	statusLength = 8
	statusText   = 12
	statusMap    = 512 // then the epoch of each port, then a bit per port, for which the fault counts
	faultTextMax = statusMap - statusText
)

// faultKind is an error of the control path, as encoded in shared memory.
type faultKind uint32

const (
	faultNone faultKind = iota
	faultReconf
	faultUnknownMap
	faultPlaneDown
	faultOther
	numFaults
)

var faultErrors = [numFaults]error{nil, ocsctl.ErrReconfFailed, ocsctl.ErrUnknownMap, ocsctl.ErrPlaneDown, nil}

// fault is the reason why a plane is out of service.
type fault struct {
	kind faultKind
	text string
}

// toFault encodes an error for shared memory.
func toFault(err error) fault {
	if err == nil {
		return fault{}
	}
	for k := faultReconf; k < faultOther; k++ {
		if errors.Is(err, faultErrors[k]) {
			return fault{k, strings.TrimSuffix(err.Error(), ": "+faultErrors[k].Error())}
		}
	}
	return fault{faultOther, err.Error()}
}

func (f fault) err() error {
	if f.kind >= faultOther {
		return fmt.Errorf("ocs: %s", f.text)
	}
	return fmt.Errorf("ocs: %s: %w", f.text, faultErrors[f.kind])
}

type statusPage struct {
	mem   []byte
	ports int
	port  int // of the reader
}

func statusSize(planes, ports int) int { return planes * statusStride(ports) }
func statusStride(ports int) int       { return roundUp(statusOut(ports)+4*roundUp(ports, 32)/32, lineSize) }
func statusEpochs(ports int) int       { return statusMap + 4*ports }
func statusOut(ports int) int          { return statusEpochs(ports) + 4*ports }

func (s statusPage) plane(p int) []byte {
	n := statusStride(s.ports)
	return s.mem[p*n : (p+1)*n]
}

// write publishes a plane's state. The fault counts for the ports of out; nil: for all. One goroutine writes.
func (s statusPage) write(plane int, epochs []uint32, at circuit.Permutation, f fault, out map[int]string) {
	m := s.plane(plane)
	seq := word(m, statusSeq)
	seq.Add(1)
	for r, epoch := range epochs {
		word(m, statusEpochs(s.ports)+4*r).Store(epoch)
	}
	text := f.text
	if len(text) > faultTextMax {
		text = text[:faultTextMax]
	}
	word(m, statusLength).Store(uint32(len(text)))
	for i := 0; i < len(text); i += 4 {
		var w uint32
		for k := 0; k < 4 && i+k < len(text); k++ {
			w |= uint32(text[i+k]) << (8 * k)
		}
		word(m, statusText+i).Store(w)
	}
	for r, to := range at {
		word(m, statusMap+4*r).Store(uint32(int32(to)))
	}
	for first := 0; first < s.ports; first += 32 {
		var bits uint32
		for r := first; r < min(first+32, s.ports); r++ {
			if out == nil || out[r] != "" {
				bits |= 1 << (r % 32)
			}
		}
		word(m, statusOut(s.ports)+first/8).Store(bits)
	}
	word(m, statusFault).Store(uint32(f.kind))
	seq.Add(1)
}

// seq identifies the published state. It is even and changes with every write.
func (s statusPage) seq(plane int) uint32 { return word(s.plane(plane), statusSeq).Load() }

// epoch is that of the reader's port. It is a single load, for polling, as is faulted of a plane in service.
func (s statusPage) epoch(plane int) uint32 {
	return word(s.plane(plane), statusEpochs(s.ports)+4*s.port).Load()
}

func (s statusPage) faulted(plane int) bool { return s.fault(plane) != faultNone && s.out(plane) }
func (s statusPage) fault(plane int) faultKind {
	return faultKind(word(s.plane(plane), statusFault).Load())
}

// out reports whether the fault counts for the reader's port.
func (s statusPage) out(plane int) bool {
	return word(s.plane(plane), statusOut(s.ports)+s.port/32*4).Load()>>(s.port%32)&1 != 0
}

// read returns a consistent copy, and its sequence counter. ok is false if the controller has ended while it was
// writing: then there is none.
func (s statusPage) read(plane int, ended func() bool) (st ocsctl.PlaneState, f fault, seq uint32, ok bool) {
	m := s.plane(plane)
	text := make([]byte, faultTextMax)
	st.Map = make(circuit.Permutation, s.ports)
	for {
		if seq = s.seq(plane); seq%2 != 0 {
			if ended() && s.seq(plane) == seq {
				return st, f, seq, false
			}
			continue
		}
		st.Epoch = s.epoch(plane)
		if f.kind = faultKind(word(m, statusFault).Load()); !s.out(plane) {
			f.kind = faultNone
		}
		n := min(int(word(m, statusLength).Load()), faultTextMax)
		for i := 0; i < n; i += 4 {
			w := word(m, statusText+i).Load()
			for k := 0; k < 4 && i+k < n; k++ {
				text[i+k] = byte(w >> (8 * k))
			}
		}
		for r := range st.Map {
			st.Map[r] = int(int32(word(m, statusMap+4*r).Load()))
		}
		if s.seq(plane) == seq {
			f.text = string(text[:n])
			return st, f, seq, true
		}
	}
}
