package host_test

import (
	"errors"
	"fmt"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/collectives/datatype"
	"lightpath/internal/assert"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/errdefs"
	"lightpath/shim/shimtest"
)

// TestBadBuffers: a buffer that is not mapped, or read-only, fails the communicator on every path on which a CPU
// copies. The error names rank, call and address. It does not end the process.
func TestBadBuffers(t *testing.T) {
	const floats = 1 << 16
	mapped := func(protection int) unsafe.Pointer {
		mem, err := unix.Mmap(-1, 0, 4*floats, protection, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Munmap(mem); err != nil {
				t.Error(err)
			}
		})
		return unsafe.Pointer(&mem[0])
	}
	readOnly, unreadable := mapped(unix.PROT_READ), mapped(unix.PROT_NONE)
	for _, path := range []string{"arena", "frames", "circuits", "tcp"} {
		for _, wrong := range []string{"receive", "send"} {
			t.Run(path+"/"+wrong, func(t *testing.T) {
				shimtest.UsePath(t, path, 2)
				w := shimtest.NewWorld(t, 2)
				errs := w.Each(func(c *shim.Comm) error {
					call := shimtest.AllReduce(c, make([]float32, floats))
					call.Recv = unsafe.Pointer(&make([]float32, floats)[0])
					switch {
					case c.Rank == 1:
					case wrong == "send":
						call.Send = unreadable
					default:
						call.Recv = readOnly
					}
					return shim.Run([]calls.Call{call})
				})
				says := []string{"rank 0: AllReduce(", "the receive buffer is read-only at 0x"}
				if wrong == "send" {
					says[1] = "the send buffer is not readable at 0x"
				}
				shimtest.WantErrors(t, errs, errdefs.ErrInvalidArgument, says...)
			})
		}
	}
}

// TestBadPage: a send whose buffer has a page that cannot be read fails at once. A TCP plane has sent the pages before
// it, and does not count as broken.
func TestBadPage(t *testing.T) {
	const pages, page = 64, 4096
	mem, err := unix.Mmap(-1, 0, pages*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, unix.Munmap(mem)) })
	require.NoError(t, unix.Mprotect(mem[pages/2*page:][:page], unix.PROT_NONE))
	for _, path := range []string{"arena", "frames", "circuits", "tcp"} {
		t.Run(path, func(t *testing.T) {
			shimtest.UsePath(t, path, 2)
			w := shimtest.NewWorld(t, 2)
			shimtest.WantErrors(t, w.Each(func(c *shim.Comm) error {
				call := calls.Call{Comm: c, Kind: calls.Send, Type: datatype.Uint8, Peer: 1, Count: pages * page,
					Send: unsafe.Pointer(&mem[0])}
				if c.Rank == 1 {
					call.Kind, call.Peer, call.Send = calls.Recv, 0, nil
					call.Recv = unsafe.Pointer(&make([]byte, pages*page)[0])
				}
				return shim.Run([]calls.Call{call})
			}), errdefs.ErrInvalidArgument, "rank 0: Send(", "the send buffer is not readable at 0x")
		})
	}
}

// TestBadAddress: an address that Go's runtime does not report, in the first page or one that no process can have,
// fails calls as others do, also in the background.
func TestBadAddress(t *testing.T) {
	addresses := []uintptr{0xdead << 48, 8}
	if shimtest.RaceEnabled {
		addresses = addresses[:1] // checkptr forbids pointers to the first page
	}
	for _, path := range []string{"arena", "frames"} {
		for _, at := range addresses {
			for _, quick := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%#x/nonblocking=%v", path, at, quick), func(t *testing.T) {
					shimtest.UsePath(t, path, 2)
					w := shimtest.NewWorld(t, 2)
					for _, c := range w.Comms {
						c.NonBlocking = quick
					}
					shimtest.WantErrors(t, w.Each(func(c *shim.Comm) error {
						call := shimtest.AllReduce(c, make([]float32, 100))
						call.Recv = unsafe.Pointer(&make([]float32, 100)[0])
						if c.Rank == 0 {
							call.Send = shimtest.FakeAddress(at)
						}
						err := shim.Run([]calls.Call{call})
						if errors.Is(err, errdefs.ErrInProgress) {
							shimtest.Eventually(func() bool { return c.Busy() == nil })
							err = c.AsyncError()
						}
						return err
					}), errdefs.ErrInvalidArgument, "rank 0: AllReduce(",
						fmt.Sprintf("the send buffer is not mapped at %#x", at))
				})
			}
		}
	}
}

// TestNoScratch: a call that needs more scratch memory than there can be fails, and does not end the process.
func TestNoScratch(t *testing.T) {
	shimtest.UsePath(t, "tcp", 2)
	w := shimtest.NewWorld(t, 2)
	shimtest.WantErrors(t, w.Each(func(c *shim.Comm) error {
		mem := unsafe.Pointer(&make([]byte, 8)[0])
		return shim.Run([]calls.Call{{Comm: c, Kind: calls.AllToAll, Type: datatype.Uint8, Count: 1 << 46,
			Send: mem, Recv: mem}})
	}), errdefs.ErrSystem, "bytes of scratch")
}
