package emulator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// Errors of [ReadLog].
var (
	ErrLogCorrupt   = errors.New("not a frame log or corrupt")
	ErrLogTruncated = errors.New("frame log is cut off")
	ErrLogOverflow  = errors.New("frame log is incomplete: the disk was slower than the switch")
)

// Log is a frame log in memory. Frames of one circuit are in the order in which they ended. Frames of different
// circuits are in the order in which the switch noticed them. Switches are in order.
type Log struct {
	Ports, Planes int
	Frames        []FrameRecord
	Switches      []SwitchRecord
}

// ReadLog reads the log of a switch that has been closed. Its errors are the ones above: it refuses a log that is
// damaged, cut off, or incomplete.
func ReadLog(path string) (*Log, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("emulator: %w", err)
	}
	l, err := parseLog(data)
	if err != nil {
		return nil, fmt.Errorf("emulator: %s: %w", path, err)
	}
	return l, nil
}

// parseLog decodes a whole log. The last record must be a mark that counts all records.
func parseLog(data []byte) (*Log, error) {
	if len(data) < headerSize || string(data[:len(logMagic)]) != logMagic {
		return nil, ErrLogCorrupt
	}
	le := binary.LittleEndian
	if v := le.Uint32(data[8:]); v != logVersion {
		return nil, fmt.Errorf("version %d, this program reads %d: %w", v, logVersion, ErrLogCorrupt)
	}
	l := &Log{Ports: int(le.Uint32(data[12:])), Planes: int(le.Uint32(data[16:]))}
	if l.Ports < 1 || l.Ports > controller.MaxPorts || l.Planes < 1 || l.Planes > controller.MaxPlanes {
		return nil, fmt.Errorf("%d ports, %d planes: %w", l.Ports, l.Planes, ErrLogCorrupt)
	}
	records, complete := uint64(0), false
	for at := headerSize; at < len(data); {
		rest := data[at:]
		if len(rest) < recordSize {
			return nil, ErrLogTruncated
		}
		n, err := l.record(rest, records)
		if err != nil {
			return nil, fmt.Errorf("at byte %d: %w", at, err)
		}
		if complete = rest[0] == kindMark; !complete {
			records++
		}
		at += n
	}
	if !complete {
		return nil, ErrLogTruncated
	}
	return l, nil
}

// record adds the record at the head of b to l, and returns its size in bytes. b holds at least recordSize bytes.
// before is the number of records before this one, which a mark must state.
func (l *Log) record(b []byte, before uint64) (int, error) {
	le := binary.LittleEndian
	plane := le.Uint16(b[2:])
	switch b[0] {
	case kindFrame:
		r := FrameRecord{
			Verdict: Verdict(b[1]), Plane: plane, Src: le.Uint16(b[4:]), Dst: le.Uint16(b[6:]),
			Start: int64(le.Uint64(b[8:])), Finish: int64(le.Uint64(b[16:])),
			Epoch: le.Uint32(b[24:]), Bytes: le.Uint32(b[28:]), Label: [LabelSize]byte(b[32:]),
		}
		if r.Verdict >= numVerdicts || int(plane) >= l.Planes || int(r.Src) >= l.Ports ||
			int(r.Dst) >= l.Ports && r.Dst != vacantPort || r.Finish < r.Start {
			return 0, fmt.Errorf("frame record: %w", ErrLogCorrupt)
		}
		l.Frames = append(l.Frames, r)
	case kindChange:
		ports := int(le.Uint32(b[4:]))
		r := SwitchRecord{Plane: plane, Start: int64(le.Uint64(b[8:])), End: int64(le.Uint64(b[16:])),
			Epoch: le.Uint32(b[24:])}
		if ports != l.Ports || int(plane) >= l.Planes || r.End < r.Start {
			return 0, fmt.Errorf("switch record: %w", ErrLogCorrupt)
		}
		size := recordSize + 4*ports
		if len(b) < size {
			return 0, ErrLogTruncated
		}
		r.Map = make(circuit.Permutation, ports)
		for p := range r.Map {
			r.Map[p] = int(int32(le.Uint32(b[recordSize+4*p:])))
		}
		if err := r.Map.Validate(ports); err != nil {
			return 0, fmt.Errorf("switch record: map %w: %w", err, ErrLogCorrupt)
		}
		l.Switches = append(l.Switches, r)
		return size, nil
	case kindMark:
		if lost := le.Uint64(b[16:]); lost != 0 {
			return 0, fmt.Errorf("%d records lost: %w", lost, ErrLogOverflow)
		}
		if n := le.Uint64(b[8:]); n != before {
			return 0, fmt.Errorf("mark counts %d records, found %d: %w", n, before, ErrLogCorrupt)
		}
	default:
		return 0, fmt.Errorf("record kind %#x: %w", b[0], ErrLogCorrupt)
	}
	return recordSize, nil
}
