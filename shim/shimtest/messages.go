package shimtest

import (
	"fmt"
	"math/rand/v2"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/shim"
	"lightpath/shim/calls"
)

func Message32(kind calls.Kind, c *shim.Comm, peer int, buf []int32) calls.Call {
	return calls.Call{Comm: c, Kind: kind, Type: datatype.Int32, Peer: int32(peer), Count: uint64(len(buf)), Send: unsafe.Pointer(unsafe.SliceData(buf)), Recv: unsafe.Pointer(unsafe.SliceData(buf))}
}

func Ramp(from, n int) []int32 {
	b := make([]int32, n)
	for i := range b {
		b[i] = int32(from*1000003 + i)
	}
	return b
}

func Equal32(got, want []int32) error {
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("[%d] is %d, want %d", i, got[i], want[i])
		}
	}
	return nil
}

// counts[src][dst] lists the elements of the messages from src to dst.
type Messages [][][]int

// randomCounts draws a matrix: most pairs with one message, some with none, an empty one or more
// than one, and ports and pairs of very different size.
func RandomMessages(rng *rand.Rand, n, scale int) Messages {
	c := make(Messages, n)
	for src := range c {
		c[src] = make([][]int, n)
		busy := []int{1, 1, 8}[rng.IntN(3)]
		for dst := range c[src] {
			switch rng.IntN(8) {
			case 0:
			case 1:
				c[src][dst] = []int{0}
			case 2:
				c[src][dst] = []int{rng.IntN(scale), rng.IntN(3), rng.IntN(scale)}
			default:
				c[src][dst] = []int{rng.IntN(scale * busy)}
			}
		}
	}
	return c
}

// exchange runs the matrix as one group on every rank, after the delay for the rank, and compares
// what arrives. salt makes the contents differ.
func (m Messages) Exchange(w *World, salt int, delay func(rank int) time.Duration) error {
	return m.Prepare(w, salt).Run(w, delay)
}

// prepare makes the messages of the matrix.
func (m Messages) Prepare(w *World, salt int) *Operation {
	value := func(src, dst, i int) int { return salt*97 + (src*len(m)+dst)*7 + i }
	d := &Operation{Name: fmt.Sprintf("messages %v", m), Messages: true, Calls: make([][]calls.Call, len(m))}
	in := make([][][][]int32, len(m)) // [dst][src][message]
	for me, c := range w.Comms {
		in[me] = make([][][]int32, len(m))
		for peer := range m {
			for i, n := range m[me][peer] {
				d.Calls[me] = append(d.Calls[me], Message32(calls.Send, c, peer, Ramp(value(me, peer, i), n)))
			}
			for _, n := range m[peer][me] {
				buf := make([]int32, n)
				in[me][peer] = append(in[me][peer], buf)
				d.Calls[me] = append(d.Calls[me], Message32(calls.Recv, c, peer, buf))
			}
		}
	}
	d.everyRank(len(m), func(me int) error {
		for peer := range m {
			for i, n := range m[peer][me] {
				if err := Equal32(in[me][peer][i], Ramp(value(peer, me, i), n)); err != nil {
					return fmt.Errorf("message %d from rank %d: %w", i, peer, err)
				}
			}
		}
		return nil
	})
	return d
}
