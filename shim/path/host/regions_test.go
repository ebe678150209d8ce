package host_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/shimtest"
)

// regionMemory gives out memory of a region for each rank that has one, and heap to the others.
type regionMemory struct {
	t   testing.TB
	has func(rank int) bool
	mem [][]byte // by rank
	at  []int
}

func newRegionMemory(t testing.TB, ranks, size int, has func(rank int) bool) *regionMemory {
	m := &regionMemory{t: t, has: has, mem: make([][]byte, ranks), at: make([]int, ranks)}
	for r := range ranks {
		if has(r) {
			m.mem[r] = shimtest.WindowMemory(t, size, true)
		}
	}
	return m
}

func (m *regionMemory) room(rank, n int) []byte {
	if !m.has(rank) {
		return make([]byte, n)
	}
	if m.at[rank]+n > len(m.mem[rank]) {
		m.at[rank] = 0
	}
	if n > len(m.mem[rank]) {
		m.t.Fatalf("%d bytes of a region of %d", n, len(m.mem[rank]))
	}
	from := m.at[rank]
	m.at[rank] += (n + 63) &^ 63
	return m.mem[rank][from : from+n : from+n]
}

// mappings is how many mappings of the regions there are besides their own.
func (m *regionMemory) mappings() (n int) {
	m.t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		m.t.Skip(err)
	}
	files, own := map[string]int{}, []string{}
	for line := range strings.Lines(string(maps)) {
		var from, to uintptr
		var access, offset, device, inode string
		if k, _ := fmt.Sscanf(line, "%x-%x %s %s %s %s", &from, &to, &access, &offset, &device, &inode); k != 6 {
			continue
		}
		files[inode]++
		for _, mem := range m.mem {
			if mem != nil && from == uintptr(unsafe.Pointer(&mem[0])) {
				own = append(own, inode)
			}
		}
	}
	for _, inode := range own {
		n += files[inode] - 1
	}
	return n
}

// TestRegionsOracle: all collectives on memory of ncclMemAlloc, of all ranks or of some; and what has been mapped is
// given back with the communicator.
func TestRegionsOracle(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	const ranks = 3
	for name, has := range map[string]func(rank int) bool{
		"all": func(int) bool { return true }, "root": func(r int) bool {
			return r == 0
		}, "others": func(r int) bool { return r > 0 },
	} {
		t.Run(name, func(t *testing.T) {
			m := newRegionMemory(t, ranks, 32<<20, has)
			rng := rand.New(rand.NewPCG(21, 21))
			w := shimtest.NewWorld(t, ranks)
			counts := []int{10000, 70000, 150001}
			if testing.Short() {
				counts = []int{10000, 70001}
			}
			for _, count := range counts {
				for _, kind := range shimtest.OracleKinds {
					for i := range 4 { // the first ones tell of the memory
						k := shimtest.Collective{
							Kind: kind, Type: datatype.Int32, Op: datatype.Op(rng.IntN(4)), Root: 0, Count: count, InPlace: i%2 == 1,
							Skew: 4 * (i / 2), Memory: m.room,
						}
						require.NoError(t, k.Run(w, rng))
					}
				}
			}
			if m.mappings() == 0 {
				t.Error("nothing has been mapped")
			}
			for _, c := range w.Comms {
				assert.NoError(t, c.Destroy())
			}
			if !shimtest.Eventually(func() bool { return m.mappings() == 0 }) {
				t.Errorf("%d mappings are left", m.mappings())
			}
		})
	}
}

// TestRegionFreed: memory that is freed right after the call, and other memory at its address, are not mistaken for
// each other.
func TestRegionFreed(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	w := shimtest.NewWorld(t, 2)
	const size = 1 << 20
	for round := range 6 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			mem := shimtest.WindowMemory(t, size, true) // freed with the subtest: the next is likely to have its address
			other, got := make([]byte, size), make([]byte, 2*size)
			for i := range other {
				mem[i], other[i] = byte(round+1), byte(100+round)
			}
			for range 4 {
				shimtest.NoErrors(t, shimtest.Concurrently(t, 2, func(r int) error {
					call := calls.Call{Comm: w.Comms[r], Kind: calls.AllGather, Type: datatype.Uint8, Count: size,
						Send: unsafe.Pointer(&mem[0]), Recv: unsafe.Pointer(&got[0])}
					if r == 1 {
						call.Send, call.Recv = unsafe.Pointer(&other[0]), unsafe.Pointer(&make([]byte, 2*size)[0])
						got := unsafe.Slice((*byte)(call.Recv), 2*size)
						if err := shim.Run([]calls.Call{call}); err != nil {
							return err
						}
						if !bytes.Equal(got[:size], mem) || !bytes.Equal(got[size:], other) {
							return fmt.Errorf("rank 1 has %d and %d", got[0], got[size])
						}
						return nil
					}
					return shim.Run([]calls.Call{call})
				}))
			}
		})
	}
}

// TestRegionsAllocateNothing: in calls whose memory has been mapped.
func TestRegionsAllocateNothing(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "shm")
	m := newRegionMemory(t, 2, 8<<20, func(int) bool { return true })
	w := shimtest.NewWorld(t, 2)
	const count = 300000
	group := [2][]calls.Call{}
	for r := range group {
		group[r] = []calls.Call{shimtest.AllReduce(w.Comms[r],
			unsafe.Slice((*float32)(unsafe.Pointer(&m.room(r, 4*count)[0])), count))}
	}
	ranksAllocateNothing(t, group)
}
