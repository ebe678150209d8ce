package emulator

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"lightpath/plans/circuit"
)

// ProtocolVersion is that of the control messages and of the shared memory behind them;
// both ends must have the same.
const ProtocolVersion = 1

// maxMessage bounds a control message; the largest is a map of MaxPorts ports.
const maxMessage = 1 << 16

// ErrProtocol reports a control message that is not one.
var ErrProtocol = errors.New("malformed control message")

// The types of control messages; PROTOCOL.md says who sends which, and when.
const (
	msgHello   = "hello"
	msgWelcome = "welcome"
	msgPost    = "post"
	msgAcquire = "acquire"
	msgRelease = "release"
	msgGranted = "granted"
	msgWatch   = "watch"
	msgState   = "state"
	msgWaiting = "waiting"
	msgFlush   = "flush"
	msgDone    = "done"
	msgGoodbye = "goodbye"
	msgError   = "error"
)

// observer is the port of a connection that is attached to none.
const observer = -1

// message is every control message: one JSON object, 4 bytes of length before it.
type message struct {
	Type    string              `json:"type"`
	Version int                 `json:"version,omitempty"`
	Port    int                 `json:"port,omitempty"`
	ID      uint64              `json:"id,omitempty"` // of a request, repeated in its answer
	Plane   int                 `json:"plane,omitempty"`
	Epoch   uint32              `json:"epoch,omitempty"`
	Target  circuit.Permutation `json:"target,omitempty"`
	Mask    uint64              `json:"mask,omitempty"`
	Holder  uint64              `json:"holder,omitempty"`
	Text    string              `json:"text,omitempty"`
	Fabric  *fabricInfo         `json:"fabric,omitempty"`
}

// fabricInfo is what a welcome tells of the switch.
type fabricInfo struct {
	Ports  int         `json:"ports"`
	Slots  int         `json:"slots"`
	MTU    int         `json:"mtu"`
	Planes []PlaneInfo `json:"planes"`
}

// PlaneInfo describes a plane to its clients.
type PlaneInfo struct {
	Name                string  `json:"name"`
	BandwidthBitsPerSec float64 `json:"bandwidth_bits_per_sec"`
	ReconfigNS          int64   `json:"reconfig_ns"`
	ReconfigPerPortNS   int64   `json:"reconfig_per_port_ns"`
}

// encode returns the framed message.
func (m *message) encode() ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if len(body) > maxMessage {
		return nil, fmt.Errorf("%s of %d bytes: %w", m.Type, len(body), ErrProtocol)
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body))), body...), nil
}

// appendPost appends the framed post without allocating where b has room.
func appendPost(b []byte, plane int, epoch uint32, target circuit.Permutation) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0)
	b = append(b, `{"type":"post","plane":`...)
	b = strconv.AppendInt(b, int64(plane), 10)
	b = append(b, `,"epoch":`...)
	b = strconv.AppendUint(b, uint64(epoch), 10)
	b = append(b, `,"target":[`...)
	for i, to := range target {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(to), 10)
	}
	b = append(b, "]}"...)
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

// decodeMessage parses the body of one message strictly.
func decodeMessage(body []byte) (*message, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	m := &message{}
	if err := dec.Decode(m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if dec.More() || dec.InputOffset() != int64(len(bytes.TrimRight(body, " \t\r\n"))) {
		return nil, fmt.Errorf("%w: data after the object", ErrProtocol)
	}
	switch m.Type {
	case msgHello, msgWelcome, msgPost, msgAcquire, msgRelease, msgGranted, msgWatch, msgState, msgWaiting, msgFlush, msgDone, msgGoodbye, msgError:
		return m, nil
	}
	return nil, fmt.Errorf("%w: type %q", ErrProtocol, m.Type)
}

// checkRequest checks what a client may ask of a switch with these dimensions.
func (m *message) checkRequest(ports, planes int) error {
	switch m.Type {
	case msgPost:
		if m.Plane < 0 || m.Plane >= planes {
			return fmt.Errorf("%w: post: plane %d, the switch has %d", ErrProtocol, m.Plane, planes)
		}
		if err := m.Target.Validate(ports); err != nil {
			return fmt.Errorf("%w: post: target %w", ErrProtocol, err)
		}
	case msgAcquire, msgRelease:
		if m.Mask == 0 || planes < 64 && m.Mask>>planes != 0 {
			return fmt.Errorf("%w: %s: mask %#x, the switch has %d planes", ErrProtocol, m.Type, m.Mask, planes)
		}
	case msgWaiting:
		if m.Plane < 0 || m.Plane >= planes {
			return fmt.Errorf("%w: waiting: plane %d, the switch has %d", ErrProtocol, m.Plane, planes)
		}
	case msgWatch, msgFlush, msgGoodbye:
	default:
		return fmt.Errorf("%w: unexpected %s", ErrProtocol, m.Type)
	}
	return nil
}
