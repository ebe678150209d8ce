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

// MessageInt32 returns a send or receive of buf.
func MessageInt32(kind calls.Kind, c *shim.Comm, peer int, buf []int32) calls.Call {
	return calls.Call{Comm: c, Kind: kind, Type: datatype.Int32, Peer: int32(peer), Count: uint64(len(buf)),
		Send: unsafe.Pointer(unsafe.SliceData(buf)), Recv: unsafe.Pointer(unsafe.SliceData(buf))}
}

// Ramp returns n consecutive numbers, which differ for each from.
func Ramp(from, n int) []int32 {
	b := make([]int32, n)
	for i := range b {
		b[i] = int32(from*1000003 + i)
	}
	return b
}

// CompareInt32 returns an error that names the first element in which got is not want.
func CompareInt32(got, want []int32) error {
	for i := range want {
		if got[i] != want[i] {
			return fmt.Errorf("[%d] is %d, want %d", i, got[i], want[i])
		}
	}
	return nil
}

// Messages lists the sizes, in elements, of the messages from src to dst: m[src][dst].
type Messages [][][]int

// RandomMessages draws a matrix of messages: most pairs have one; some have none, an empty one or several. Sizes differ
// by a factor of eight between ranks.
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

// Exchange sends the messages as one group on every rank, after a delay by rank, and checks them. Different salts make
// different contents.
func (m Messages) Exchange(w *World, salt int, delay func(rank int) time.Duration) error {
	return m.Prepare(w, salt).Run(w, delay)
}

// Prepare makes the buffers and calls of the messages.
func (m Messages) Prepare(w *World, salt int) *Operation {
	value := func(src, dst, i int) int { return salt*97 + (src*len(m)+dst)*7 + i }
	d := &Operation{Name: fmt.Sprintf("messages %v", m), Messages: true, Calls: make([][]calls.Call, len(m))}
	in := make([][][][]int32, len(m)) // [dst][src][message]
	for me, c := range w.Comms {
		in[me] = make([][][]int32, len(m))
		for peer := range m {
			for i, n := range m[me][peer] {
				d.Calls[me] = append(d.Calls[me], MessageInt32(calls.Send, c, peer, Ramp(value(me, peer, i), n)))
			}
			for _, n := range m[peer][me] {
				buf := make([]int32, n)
				in[me][peer] = append(in[me][peer], buf)
				d.Calls[me] = append(d.Calls[me], MessageInt32(calls.Recv, c, peer, buf))
			}
		}
	}
	d.checkRanks(len(m), func(me int) error {
		for peer := range m {
			for i, n := range m[peer][me] {
				if err := CompareInt32(in[me][peer][i], Ramp(value(peer, me, i), n)); err != nil {
					return fmt.Errorf("message %d from rank %d: %w", i, peer, err)
				}
			}
		}
		return nil
	})
	return d
}
