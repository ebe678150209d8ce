// Package loss loses frames: a program in the kernel drops arriving frames of an interface with a given probability, as
// a bad transceiver or a dirty connector does. It is for tests, measurements and drills. It needs no netem, which many
// kernels lack.
//
// A frame dropped at the switch's end of a link is lost on the wire: the sender gets no error, as it would from its own
// queue. Frames that offloads have joined are lost as one. To lose single frames, switch these offloads off at the
// sender.
//
// Layer: ocsctl/kernel.
package loss

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// The words of the map value that the program and this package share.
const (
	wordLimit = iota // frames with 32 random bits below this value are lost
	wordSeen
	wordLost
	words
)

// certain is above all random numbers.
const certain = 1 << 32

// Interface is an interface that loses frames until it is closed. Safe for concurrent use.
type Interface struct {
	shared *ebpf.Map
	link   link.Link

	mu     sync.Mutex
	memory *ebpf.Memory // of shared
}

// Attach attaches the program to an interface of the calling thread's namespace. It loses nothing until Set. Close, or
// the end of the process, removes the program. It needs Linux 6.6, CAP_NET_ADMIN and CAP_BPF.
func Attach(name string) (*Interface, error) {
	l := &Interface{}
	err := l.attach(name)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("loss: interface %s: %w", name, err), l.Close())
	}
	return l, nil
}

func (l *Interface) attach(name string) error {
	device, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	l.shared, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "loss", Type: ebpf.Array, KeySize: 4, ValueSize: 8 * words, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE,
	})
	if err != nil {
		return fmt.Errorf("eBPF map: %w", err)
	}
	if l.memory, err = l.shared.Memory(); err != nil {
		return fmt.Errorf("eBPF map: %w", err)
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "loss", Type: ebpf.SchedCLS,
		Instructions: instructions(l.shared.FD()), License: "Apache-2.0"})
	if err != nil {
		return fmt.Errorf("eBPF program: %w", err)
	}
	defer func() { _ = program.Close() }() // the link has it
	if l.link, err = link.AttachTCX(link.TCXOptions{Interface: device.Index, Program: program,
		Attach: ebpf.AttachTCXIngress}); err != nil {
		return fmt.Errorf("TCX (Linux 6.6): %w", err)
	}
	return nil
}

// instructions draws a number for each frame. R6 points to the shared words, and R7 is the verdict. A lost frame is
// counted as lost before it is counted as seen.
func instructions(shared int) asm.Instructions {
	const next, drop = -1, 2 // of TCX
	return asm.Instructions{
		asm.LoadMapValue(asm.R6, shared, 0),
		asm.Mov.Imm(asm.R7, next),
		asm.FnGetPrandomU32.Call(),
		asm.LoadMem(asm.R2, asm.R6, 8*wordLimit, asm.DWord),
		asm.JGE.Reg(asm.R0, asm.R2, "seen"),
		asm.Mov.Imm(asm.R7, drop),
		asm.Mov.Imm(asm.R1, 1),
		asm.AddAtomic.Mem(asm.R6, asm.R1, asm.DWord, 8*wordLost),
		asm.Mov.Imm(asm.R1, 1).WithSymbol("seen"),
		asm.AddAtomic.Mem(asm.R6, asm.R1, asm.DWord, 8*wordSeen),
		asm.Mov.Reg(asm.R0, asm.R7),
		asm.Return(),
	}
}

// Set sets the fraction of frames to lose: 0 none, 1 all.
func (l *Interface) Set(rate float64) error {
	if !(rate >= 0 && rate <= 1) { // NaN is neither
		return fmt.Errorf("loss: rate %v is outside 0..1", rate)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.memory.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(rate*certain)), 8*wordLimit)
	return err
}

// Counts returns how many frames have arrived, and how many of them have been lost.
func (l *Interface) Counts() (seen, lost uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b [8 * words]byte
	if _, err := l.memory.ReadAt(b[:], 0); err != nil {
		panic(err) // the map is smaller than it was made
	}
	return binary.NativeEndian.Uint64(b[8*wordSeen:]), binary.NativeEndian.Uint64(b[8*wordLost:])
}

// Close removes the program, so the interface loses nothing more.
func (l *Interface) Close() error {
	var err error
	if l.link != nil {
		err = l.link.Close()
	}
	if l.shared != nil {
		err = errors.Join(err, l.shared.Close())
	}
	return err
}
