package local

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"lightpath/internal/decode"
	"lightpath/ocsctl"
	"lightpath/plans/circuit"
)

// ProtocolVersion is the version of the control messages and of the shared memory. Both ends must have the same
// version.
const ProtocolVersion = 9

// maxMessage bounds a control message, in bytes. The largest contains a lease with ocsctl.MaxCircuits and all ports.
const maxMessage = 1 << 16

// ErrProtocol reports a malformed control message.
var ErrProtocol = errors.New("malformed control message")

// The types of control messages; see PROTOCOL.md.
const (
	msgHello   = "hello"
	msgWelcome = "welcome"
	msgPost    = "post"
	msgAcquire = "acquire"
	msgRelease = "release"
	msgGranted = "granted"
	msgRefused = "refused"
	msgWanted  = "wanted"
	msgWatch   = "watch"
	msgState   = "state"
	msgWaiting = "waiting"
	msgDone    = "done"
	msgGoodbye = "goodbye"
	msgError   = "error"
)

// message is a control message. It is encoded as 4 bytes of length and a JSON object.
type message struct {
	Type     string              `json:"type"`
	Version  int                 `json:"version,omitempty"`
	Port     int                 `json:"port,omitempty"`
	ID       uint64              `json:"id,omitempty"` // of a request, repeated in its answer
	Plane    int                 `json:"plane,omitempty"`
	Epoch    uint32              `json:"epoch,omitempty"`
	Target   circuit.Permutation `json:"target,omitempty"`
	Mask     uint64              `json:"mask,omitempty"`
	Holder   uint64              `json:"holder,omitempty"`
	Lease    *ocsctl.Lease       `json:"lease,omitempty"`
	Text     string              `json:"text,omitempty"`
	Software string              `json:"software,omitempty"` // the version of the sender's
	Fabric   *fabricInfo         `json:"fabric,omitempty"`
}

// fabricInfo describes the planes in a welcome.
type fabricInfo struct {
	Controller string             `json:"controller,omitempty"`
	Ports      int                `json:"ports"`
	Planes     []ocsctl.PlaneInfo `json:"planes"`
	DataPlane  string             `json:"data_plane"`
	// Rings describes the data path's memory, which comes with the welcome; nil: there is no such memory.
	Rings *RingsInfo `json:"rings,omitempty"`
}

// RingsInfo describes a port's memory to its rank.
type RingsInfo struct {
	Slots int `json:"slots"`
	MTU   int `json:"mtu"`
	Bytes int `json:"bytes"` // of the memory
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

// decodeMessage parses the body of one message strictly.
func decodeMessage(body []byte) (*message, error) {
	m := &message{}
	if err := decode.StrictJSON(body, m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	switch m.Type {
	case msgHello, msgWelcome, msgPost, msgAcquire, msgRelease, msgGranted, msgRefused, msgWanted, msgWatch, msgState,
		msgWaiting, msgDone, msgGoodbye, msgError:
		return m, nil
	}
	return nil, fmt.Errorf("%w: type %q", ErrProtocol, m.Type)
}
