package shim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// msgKind is the kind of a control message.
type msgKind uint8

// The control messages. "To the leader" unless said otherwise.
const (
	msgHello     msgKind = iota // rendezvous: Body is a hello
	msgWelcome                  // root to rank: Arg is the communicator, Body the table of hellos
	msgRefuse                   // root to rank: Body says why
	msgJoin                     // first message of a control connection
	msgSegment                  // leader to all: Body names the shared memory segment
	msgPlanes                   // Body says where this rank's ends of planes are; leader to all: everyone's
	msgReady                    // planes are attached, or Body says why not
	msgGo                       // leader to all: everyone is ready
	msgWant                     // Seq wants a ticket; Arg is the signature, Body describes the call
	msgTicket                   // leader to all: Body is a ticket
	msgDone                     // the operation of the ticket Seq has ended here
	msgPlanReq                  // Body is the digest of a plan that this rank lacks
	msgPlan                     // leader to rank: Body is the plan
	msgPoison                   // both ways: Arg is the errClass, Body the reason
	msgState                    // stalled in Seq with signature Arg; Body describes the call
	msgQuery                    // leader to all: what did you call as Seq? Answered by msgState
	msgTimeout                  // as msgState, and giving up
	msgGoodbye                  // both ways: From is leaving; from the leader with Arg 1: all have
	msgRow                      // Seq numbers a group of sends and receives; Body is its row
	msgRound                    // leader to rank: the answer to msgRow; Body says how, nothing: packet planes
	msgKin                      // a new communicator is to come from this one; Seq counts them, Arg is the How, Body a kinAsk
	msgKinAnswer                // leader to rank: Arg is the errClass with Body the reason, or 0 with a kinAnswer
	msgBlock                    // delegate to root: Body is the table of a block of ranks
	msgVacateAsk                // ports of some ranks are to give up circuits; Body is a vacateAsk; answered by msgKinAnswer
	msgVacate                   // leader to rank: this rank's is
	msgAsk                      // to the leader: what is everyone doing? Seq numbers the question; leader to all: Arg is who asks
	msgTell                     // answer to msgAsk, to the leader and on to rank Arg; Body says what the rank is doing
	msgExchange                 // leader to all: Body says where the page of tokens is
	msgManaged                  // step Seq of the way to exchange through the memory of devices is done, or Body says why not
	msgAccord                   // leader to all: everyone has answered step Seq; Body says why one could not
	msgPlanAsk                  // which plan do calls of a shape that are interposed have? Seq numbers the question, Body is the shape
	msgPlanTold                 // leader to rank: the answer; Arg is 1 with the plan, 0 with the reason why there is none
	msgRegions                  // a rank has registered device memory, or does no more: all are to look; leader to all: the same
	numMsgKinds
)

// message is what travels between ranks outside the planes.
type message struct {
	Kind     msgKind
	From     uint16
	Seq, Arg uint64
	Body     []byte
}

// The encoding, little endian: body length u32, kind u8, zero u8, from u16, seq u64,
// arg u64, body.
const msgHeader = 24

// maxBody bounds a body by kind, so that a stranger's length cannot make us allocate.
func maxBody(k msgKind) uint32 {
	switch k {
	case msgWelcome, msgPlan, msgPlanes, msgRound, msgKinAnswer, msgBlock, msgPlanTold:
		return 64 << 20
	case msgRow:
		return maxRow
	default:
		return 64 << 10
	}
}

var errMessage = errors.New("shim: malformed control message")

// appendMessage encodes m.
func appendMessage(b []byte, m *message) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, uint32(len(m.Body)))
	b = append(b, byte(m.Kind), 0)
	b = le.AppendUint16(b, m.From)
	b = le.AppendUint64(b, m.Seq)
	b = le.AppendUint64(b, m.Arg)
	return append(b, m.Body...)
}

// decodeHeader decodes all but the body, whose length it returns.
func decodeHeader(b *[msgHeader]byte, m *message) (uint32, error) {
	le := binary.LittleEndian
	n, kind := le.Uint32(b[0:]), msgKind(b[4])
	switch {
	case kind >= numMsgKinds:
		return 0, fmt.Errorf("%w: kind %d", errMessage, kind)
	case b[5] != 0:
		return 0, fmt.Errorf("%w: reserved byte is %d", errMessage, b[5])
	case n > maxBody(kind):
		return 0, fmt.Errorf("%w: kind %d with %d bytes", errMessage, kind, n)
	}
	*m = message{Kind: kind, From: le.Uint16(b[6:]), Seq: le.Uint64(b[8:]), Arg: le.Uint64(b[16:])}
	return n, nil
}

// readMessage reads one message.
func readMessage(r io.Reader, m *message) error {
	var head [msgHeader]byte
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
