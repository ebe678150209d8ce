package emulator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/local"
	"lightpath/plans/circuit"
)

// FrameRecord is the log's record of a frame. Times are nanoseconds of CLOCK_MONOTONIC, which all processes of a host
// share.
type FrameRecord struct {
	Start  int64  // its first bit entered the circuit, or its loss was detected
	Finish int64  // its last bit left the circuit: delivered, or lost
	Bytes  uint32 // of data, without the label
	Epoch  uint32 // the frame's tag: an epoch of the sending port
	Plane  uint16
	Src    uint16 // the sending port
	Dst    uint16 // the port that the circuit leads to; 0xffff: none
	Verdict
	Label [LabelSize]byte // the beginning of the frame, opaque here
}

// SwitchRecord is the log's record of a verified reconfiguration.
type SwitchRecord struct {
	Start, End int64
	Plane      uint16
	Epoch      uint32 // of the plane, which counts all switches; that of a port may be less
	Map        circuit.Permutation
}

// The log file: a header, then records, little endian. Every record begins with one
// fixed part of recordSize bytes, whose first byte is its kind; the map of a change follows it, 4 bytes per port. A
// mark ends the file and counts all records before it. A file without a mark at the end is incomplete.
const (
	logMagic    = "LPOCSLOG"
	logVersion  = 1
	headerSize  = 32 // magic, version, ports, planes, reserved
	recordSize  = 32 + LabelSize
	vacantPort  = 0xffff
	kindFrame   = 'F'
	kindChange  = 'S'
	kindMark    = 'M'
	logChunk    = 1 << 18
	logChunks   = 16
	logHeadroom = 2*recordSize + 4*controller.MaxPorts
)

// frameLog records frames without blocking the switching thread. A writer goroutine writes full chunks. If no chunk is
// free, a record counts as lost, which makes the log invalid.
type frameLog struct {
	file    *os.File
	cur     []byte // the chunk being filled; nil after an overflow
	records uint64
	lost    uint64
	free    chan []byte
	full    chan []byte
	done    sync.WaitGroup // the writer goroutine
	failed  error          // the writer's first error; read after done
}

// newFrameLog creates or truncates the file. If another switch still writes it, the error wraps local.ErrRunning.
func newFrameLog(path string, ports, planes int) (*frameLog, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("emulator: frame log: %w", err)
	}
	if err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("%s: a switch with it is %w", path, local.ErrRunning)
	} else if err = file.Truncate(0); errors.Is(err, unix.EINVAL) {
		err = nil // a pipe
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("emulator: frame log: %w", err)
	}
	l := &frameLog{file: file, free: make(chan []byte, logChunks), full: make(chan []byte, logChunks)}
	for range logChunks {
		l.free <- make([]byte, 0, logChunk+logHeadroom)
	}
	l.cur = <-l.free
	h := append(make([]byte, 0, headerSize), logMagic...)
	h = binary.LittleEndian.AppendUint32(h, logVersion)
	h = binary.LittleEndian.AppendUint32(h, uint32(ports))
	h = binary.LittleEndian.AppendUint32(h, uint32(planes))
	l.cur = append(l.cur, append(h, make([]byte, headerSize-len(h))...)...)
	l.done.Add(1)
	go l.write()
	return l, nil
}

// frame appends a record. Switching thread only; so are change and close.
func (l *frameLog) frame(r *FrameRecord) {
	if !l.room() {
		return
	}
	b := append(l.cur, kindFrame, byte(r.Verdict))
	b = binary.LittleEndian.AppendUint16(b, r.Plane)
	b = binary.LittleEndian.AppendUint16(b, r.Src)
	b = binary.LittleEndian.AppendUint16(b, r.Dst)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Start))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Finish))
	b = binary.LittleEndian.AppendUint32(b, r.Epoch)
	b = binary.LittleEndian.AppendUint32(b, r.Bytes)
	l.cur = append(b, r.Label[:]...)
}

// change appends a reconfiguration.
func (l *frameLog) change(r *SwitchRecord) {
	if !l.room() {
		return
	}
	b := append(l.cur, kindChange, 0)
	b = binary.LittleEndian.AppendUint16(b, r.Plane)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.Map)))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.Start))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.End))
	b = binary.LittleEndian.AppendUint32(b, r.Epoch)
	b = append(b, make([]byte, recordSize-28)...)
	for _, to := range r.Map {
		b = binary.LittleEndian.AppendUint32(b, uint32(int32(to)))
	}
	l.cur = b
}

// mark appends the number of records so far.
func (l *frameLog) mark() {
	b := append(l.cur, kindMark, 0, 0, 0, 0, 0, 0, 0)
	b = binary.LittleEndian.AppendUint64(b, l.records)
	b = binary.LittleEndian.AppendUint64(b, l.lost)
	l.cur = append(b, make([]byte, recordSize-24)...)
}

// room ensures that cur has space for a record, and counts the record as written or lost.
func (l *frameLog) room() bool {
	if len(l.cur) >= logChunk {
		l.full <- l.cur // never blocks: the channel has space for all chunks
		l.cur = nil
	}
	if l.cur == nil {
		select {
		case b := <-l.free:
			l.cur = b[:0]
		default:
			l.lost++
			return false
		}
	}
	l.records++
	return true
}

// write is the writer goroutine.
func (l *frameLog) write() {
	defer l.done.Done()
	for b := range l.full {
		if _, err := l.file.Write(b); err != nil && l.failed == nil {
			l.failed = fmt.Errorf("emulator: frame log: %w", err)
		}
		l.free <- b
	}
}

// close ends the log with a mark, waits for the writer goroutine and closes the file. The log must not be used again.
func (l *frameLog) close() error {
	if l.cur == nil {
		l.cur = (<-l.free)[:0] // after an overflow, wait for a chunk from the writer
	}
	l.mark()
	l.full <- l.cur
	close(l.full)
	l.done.Wait()
	return errors.Join(l.failed, l.file.Close())
}
