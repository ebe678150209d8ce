package control

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"lightpath/internal/decode"
)

// Kind is the kind of a control message.
type Kind uint8

// The control messages. They go to the leader unless said otherwise. Seq, Arg and Body are those of [Message].
const (
	MsgHello   Kind = iota // rendezvous: Body is a hello
	MsgWelcome             // root to rank: Arg is the communicator, Body the table of hellos
	// root to rank, or rank to another place: Body says why; Arg, unless 0, is the Try that it is about
	MsgRefuse
	MsgJoin    // first message of a control connection
	MsgSegment // leader to all: Body names the shared memory segment
	MsgPlanes  // Body says where this rank's ends of planes are; leader to all: every rank's
	MsgReady   // planes are attached
	MsgGo      // leader to all: all ranks are ready; Body has the answers of a tuner
	MsgWant    // Seq wants a ticket; Arg is the signature, Body the shape of the call
	// leader to rank: the answer to MsgWant or MsgRow; Body is a ticket, then the plan of a round
	MsgTicket
	MsgDone             // the operation of ticket Seq has ended here; Body says where it leaves the planes
	MsgPlanReq          // Body is the digest of a plan that this rank lacks
	MsgPlan             // leader to rank: Body is the plan
	MsgPoison           // both ways: Arg is the class of the error, Body its text
	MsgState            // this rank is stalled in Seq with signature Arg; Body describes the call
	MsgQuery            // leader to all: which call was Seq? Answered by MsgState
	MsgTimeout          // as MsgState, and this rank gives up
	MsgGoodbye          // both ways: Body lists [Departure]; from the leader with Arg 1: all ranks have left
	MsgRow              // Seq numbers a group of sends and receives; Body is its row
	MsgMembership       // this rank wants a communicator made from this one; Seq counts them
	MsgMembershipAnswer // leader to rank: Arg is 0 with an answer, or the class of an error
	MsgBlock            // delegate to root: Body is the table of a block of ranks
	// a rank asks what every rank is doing. Seq numbers the question; leader to all: Arg is the rank that asks
	MsgAsk
	MsgTell     // answer to MsgAsk, to the leader and on to rank Arg; Body says what the rank is doing
	MsgExchange // leader to all: Body says where the page of tokens is
	// Seq numbers a step of making a data path; Body, unless empty, says why this rank cannot take it
	MsgManaged
	MsgAccord  // leader to all: all ranks have answered step Seq; Body says why one could not take it
	MsgPlanAsk // which plan do scripts of a shape have? Seq numbers the question, Body is the shape
	// leader to rank: the answer; Arg is 1 with the plan, 0 with the reason why there is none
	MsgPlanTold
	MsgRegions // a rank has registered device memory, or no longer has; leader to all: the same
	// both ways, of the shares of packet planes; Arg says what, Seq numbers the leader's questions
	MsgShares
	MsgFaults // Body lists the faults that a rank sees; leader to all: the same, Arg is the rank
	// to the leader and on to rank Arg: Body says how many messages a rank waits for from it
	MsgAwaited
	// leader to all: is the ticket of Seq, which went out ahead, in use? If not, it is void
	MsgRecall
	// the answer: Arg is 1 if the ticket is or was in use. Also without a question, if a rank asks for something else
	MsgRecalled
	MsgContested // this rank waits for planes, and has declined another communicator's ticket on them
	MsgPrepare   // leader to all: agree to a move of a plane, which Body describes
	NumKinds
)

// Message is a message between ranks outside the planes. Its kind defines the meaning of Seq, Arg and Body.
type Message struct {
	Kind     Kind
	From     uint16
	Seq, Arg uint64
	Body     []byte
}

// The encoding, little endian: body length u32, kind u8, zero u8, from u16, seq u64,
// arg u64, body.
const header = 24

// MaxRow bounds the body of MsgRow.
const MaxRow = 1 << 20

// MaxBody returns the largest body of a kind, in bytes, so that a stranger's message cannot make a rank allocate more.
func MaxBody(k Kind) uint32 {
	switch k {
	case MsgWelcome, MsgPlan, MsgPlanes, MsgTicket, MsgMembershipAnswer, MsgBlock, MsgPlanTold, MsgGoodbye:
		return 64 << 20
	case MsgRow:
		return MaxRow
	default:
		return 64 << 10
	}
}

// ErrMessage reports data that is no control message, or a message whose body is invalid for its kind.
var ErrMessage = errors.New("shim: malformed control message")

// Append appends the encoding of m to b.
func Append(b []byte, m *Message) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, uint32(len(m.Body)))
	b = append(b, byte(m.Kind), 0)
	b = le.AppendUint16(b, m.From)
	b = le.AppendUint64(b, m.Seq)
	b = le.AppendUint64(b, m.Arg)
	return append(b, m.Body...)
}

// decodeHeader decodes all fields except the body, and returns the length of the body.
func decodeHeader(b *[header]byte, m *Message) (uint32, error) {
	le := binary.LittleEndian
	n, kind := le.Uint32(b[0:]), Kind(b[4])
	switch {
	case kind >= NumKinds:
		return 0, fmt.Errorf("%w: kind %d", ErrMessage, kind)
	case b[5] != 0:
		return 0, fmt.Errorf("%w: reserved byte is %d", ErrMessage, b[5])
	case n > MaxBody(kind):
		return 0, fmt.Errorf("%w: kind %d with %d bytes", ErrMessage, kind, n)
	}
	*m = Message{Kind: kind, From: le.Uint16(b[6:]), Seq: le.Uint64(b[8:]), Arg: le.Uint64(b[16:])}
	return n, nil
}

// Read reads one message. The caller owns its body.
func Read(r io.Reader, m *Message) error {
	var head [header]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n, err := decodeHeader(&head, m)
	if err != nil || n == 0 {
		return err
	}
	m.Body = make([]byte, n)
	_, err = io.ReadFull(r, m.Body)
	return err
}

// Send writes a message within HandshakeTime, to a peer that is expected to read.
func Send(conn net.Conn, m *Message) error {
	_ = conn.SetWriteDeadline(time.Now().Add(HandshakeTime))
	_, err := conn.Write(Append(nil, m))
	return err
}

// DecodeStrict decodes JSON from a peer of the same version. An unknown field is an error.
func DecodeStrict(b []byte, into any) error {
	if err := decode.StrictJSON(b, into); err != nil {
		return fmt.Errorf("%w: %w", ErrMessage, err)
	}
	return nil
}
