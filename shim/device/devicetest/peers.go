package devicetest

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/shim/device"
)

// Peers is a [Driver] whose devices reach each other's memory, as [device.Peers], within one process.
type Peers struct {
	*Driver
	registered *atomic.Int64
	resets     *atomic.Uint64
}

var _ device.Peers = Peers{}

// NewPeers is [New] for Peers.
func NewPeers(handler device.Handler, devices int) Peers {
	return Peers{New(handler, devices), new(atomic.Int64), new(atomic.Uint64)}
}

// Reset ends all contexts. The next ones have the same handles.
func (p Peers) Reset() { p.resets.Add(1) }

// ContextID implements [device.Peers].
func (p Peers) ContextID(ctx device.Context) (uint64, error) {
	return uint64(ctx) + p.resets.Load()<<32, nil
}

// Registered returns the number of registrations that have not been undone.
func (p Peers) Registered() int { return int(p.registered.Load()) }

// Identity implements [device.Peers].
func (p Peers) Identity() (string, error) {
	return fmt.Sprintf("device %d", p.current()), p.entered("Identity")
}

// contextOf returns the context of a device.
func contextOf(dev int) device.Context { return device.Context(dev + 1) }

// Context implements [device.Peers].
func (p Peers) Context() (device.Context, error) {
	return contextOf(p.current()), p.entered("Context")
}

// PrimaryContext implements [device.Peers].
func (p Peers) PrimaryContext(dev int) (device.Context, error) {
	return contextOf(dev), p.refuse("PrimaryContext")
}

// StreamID implements [device.Peers]: a handle is never given out again.
func (p Peers) StreamID(s device.Stream) (uint64, error) {
	if err := p.refuse("StreamID"); err != nil {
		return 0, err
	}
	_, err := p.streams.device(s)
	return uint64(s), err
}

// EnterContext implements [device.Peers].
func (p Peers) EnterContext(ctx device.Context) error {
	if err := p.refuse("EnterContext"); err != nil {
		return err
	}
	if ctx == 0 || int(ctx) > p.devices {
		return fmt.Errorf("EnterContext: %#x is none: %w", uintptr(ctx), device.ErrDriver)
	}
	runtime.LockOSThread()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inside[unix.Gettid()] = int(ctx) - 1
	return nil
}

// TotalMemory implements [device.Peers].
func (p Peers) TotalMemory() (int64, error) { return 1 << 30, p.entered("TotalMemory") }

// Allocation implements [device.Peers].
func (p Peers) Allocation(at unsafe.Pointer) (unsafe.Pointer, int64, error) {
	if err := p.entered("Allocation"); err != nil {
		return nil, 0, err
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	b := p.find(uintptr(at))
	if b == nil {
		return nil, 0, fmt.Errorf("Allocation: of %p: %w", at, device.ErrDriver)
	}
	return unsafe.Add(at, -int(uintptr(at)-b.at)), int64(len(b.alias)), nil
}

// Export implements [device.Peers].
func (p Peers) Export(unsafe.Pointer) (device.Handle, error) {
	return device.Handle{}, p.entered("Export")
}

// Import implements [device.Peers]: there are no other processes.
func (p Peers) Import(*device.Handle) (unsafe.Pointer, error) {
	return nil, fmt.Errorf("Import: from this process: %w", device.ErrDriver)
}

// Close implements [device.Peers].
func (p Peers) Close(unsafe.Pointer) error {
	return fmt.Errorf("Close: nothing is imported: %w", device.ErrDriver)
}

// RetainPiece implements [device.Peers]: programs map nothing.
func (p Peers) RetainPiece(unsafe.Pointer) (uint64, error) {
	if err := p.entered("RetainPiece"); err != nil {
		return 0, err
	}
	return 0, device.ErrNotMapped
}

// ReleasePiece implements [device.Peers].
func (p Peers) ReleasePiece(uint64) error {
	return fmt.Errorf("ReleasePiece: there are none: %w", device.ErrDriver)
}

// IsPiece implements [device.Peers].
func (p Peers) IsPiece(unsafe.Pointer, uint64) bool { return false }

// ExportPiece implements [device.Peers].
func (p Peers) ExportPiece(uint64) (int, error) {
	return -1, fmt.Errorf("ExportPiece: there are none: %w", device.ErrDriver)
}

// ImportPieces implements [device.Peers]: there are no other processes.
func (p Peers) ImportPieces([]device.Piece) (unsafe.Pointer, error) {
	return nil, fmt.Errorf("ImportPieces: from this process: %w", device.ErrDriver)
}

// ClosePieces implements [device.Peers].
func (p Peers) ClosePieces(unsafe.Pointer, int64) error {
	return fmt.Errorf("ClosePieces: nothing is imported: %w", device.ErrDriver)
}

// Reach implements [device.Peers].
func (p Peers) Reach(unsafe.Pointer) error { return p.entered("Reach") }

// Register implements [device.Peers].
func (p Peers) Register(mem []byte) (device.Address, error) {
	if err := p.entered("Register"); err != nil {
		return 0, err
	}
	p.registered.Add(1)
	return device.Address(uintptr(unsafe.Pointer(unsafe.SliceData(mem))) + wordsAt), nil
}

// Unregister implements [device.Peers].
func (p Peers) Unregister([]byte) error {
	p.registered.Add(-1)
	return p.entered("Unregister")
}

// Words implements [device.Peers].
func (p Peers) Words(s device.Stream, words []device.Word) error {
	if err := p.refuse("Words"); err != nil {
		return err
	}
	for _, w := range words {
		o := op{kind: Store, word: (*uint32)(unsafe.Pointer(unsafe.SliceData(p.bytes(uintptr(w.At), 4)))), value: w.Value}
		if w.Wait != 0 {
			o.kind, o.equal = Await, true
		}
		if err := p.submit("Words", s, o); err != nil {
			return err
		}
	}
	return nil
}
