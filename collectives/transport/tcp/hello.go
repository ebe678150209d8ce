package tcp

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"lightpath/collectives/transport"
)

// A connection begins with a hello from the rank that dials and a reply from the rank that accepts. Each proves that
// its sender knows the communicator's secret.
//
// The hello, little endian: magic u64, version u32, comm u64, ranks u32, planes u32, from u32, to u32, plane u32,
// purpose u32, via u32, nonce [16]byte, HMAC-SHA256 [32]byte of all before it. A reply: position u64, HMAC-SHA256 of
// the HMAC that it answers and of the position. The rank that resumes a stream answers the reply with a reply of its
// own. A position is the number of bytes of the stream that a rank has received, 0 unless a stream is resumed.
const (
	helloMagic   = 0x4f4c4c454854504c // "LPTHELLO"
	helloVersion = 2
	macSize      = sha256.Size
	helloBody    = 8 + 4 + 8 + 7*4 + 16
	helloSize    = helloBody + macSize
	replySize    = 8 + macSize
)

// SecretSize is the size of a communicator's secret in bytes.
const SecretSize = 16

// Purposes of a connection.
const (
	forMesh   = iota // the first connection of a stream
	forResume        // continues a stream whose connection has broken
	forPoke          // asks the rank that dials the streams of both ranks to resume one
	forAnswer        // changes nothing: the answer shows that the rank could resume a stream on this plane
)

var errRejected = errors.New("not a rank of this communicator")

// hello identifies a connection of the mesh.
type hello struct {
	comm          uint64
	ranks, planes uint32
	from, to      uint32
	plane         uint32
	purpose       uint32
	via           uint32 // plane of the connection; plane is that of the stream
}

// encode returns the encoding with a new nonce and the HMAC.
func (h hello) encode(secret []byte) ([]byte, error) {
	le := binary.LittleEndian
	b := make([]byte, 0, helloSize)
	b = le.AppendUint64(b, helloMagic)
	b = le.AppendUint32(b, helloVersion)
	b = le.AppendUint64(b, h.comm)
	for _, v := range []uint32{h.ranks, h.planes, h.from, h.to, h.plane, h.purpose, h.via} {
		b = le.AppendUint32(b, v)
	}
	b = b[:helloBody]
	if _, err := rand.Read(b[helloBody-16:]); err != nil {
		return nil, err
	}
	return append(b, mac(secret, b)...), nil
}

// decodeHello checks and decodes a hello.
func decodeHello(b, secret []byte) (h hello, err error) {
	le := binary.LittleEndian
	if len(b) != helloSize || le.Uint64(b) != helloMagic {
		return h, fmt.Errorf("%w: no hello", errRejected)
	}
	if v := le.Uint32(b[8:]); v != helloVersion {
		return h, fmt.Errorf("%w: version %d, want %d", errRejected, v, helloVersion)
	}
	if !hmac.Equal(b[helloBody:], mac(secret, b[:helloBody])) {
		return h, fmt.Errorf("%w: wrong secret", errRejected)
	}
	h.comm = le.Uint64(b[12:])
	for i, v := range []*uint32{&h.ranks, &h.planes, &h.from, &h.to, &h.plane, &h.purpose, &h.via} {
		*v = le.Uint32(b[20+4*i:])
	}
	return h, nil
}

// hello returns a hello of this rank.
func (o *Options) hello(plane, via, to, purpose int) hello {
	return hello{comm: o.Comm, ranks: uint32(len(o.Addrs)), planes: uint32(o.Planes),
		from: uint32(o.Rank), to: uint32(to), plane: uint32(plane), via: uint32(via), purpose: uint32(purpose)}
}

// greet sends a hello over a new connection. It returns the reply and its position.
func (o *Options) greet(c net.Conn, h hello) (answer []byte, at uint64, err error) {
	b, err := h.encode(o.Secret[:])
	if err == nil {
		_, err = c.Write(b)
	}
	if err != nil {
		return nil, 0, err
	}
	return readReply(c, b, o.Secret[:])
}

// readHello reads a hello from another rank of the communicator. It returns the hello and its encoding.
func (o *Options) readHello(c net.Conn) (got hello, b []byte, err error) {
	b = make([]byte, helloSize)
	if _, err := io.ReadFull(c, b); err != nil {
		return got, nil, err
	}
	if got, err = decodeHello(b, o.Secret[:]); err != nil {
		return got, nil, err
	}
	want := o.hello(int(got.plane), int(got.via), o.Rank, int(got.purpose))
	want.from = got.from
	if got != want || got.plane >= want.planes || got.via >= want.planes || got.from >= want.ranks || got.from == want.to {
		return got, nil, errRejected
	}
	return got, b, nil
}

// reply returns the reply to an encoded hello or reply.
func reply(to []byte, at uint64, secret []byte) []byte {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, replySize), at)
	return append(b, mac(secret, append(bytes.Clone(to[len(to)-macSize:]), b...))...)
}

// readReply reads and checks the reply to an encoded hello or reply. It returns the reply and its position.
func readReply(r io.Reader, to, secret []byte) (b []byte, at uint64, err error) {
	b = make([]byte, replySize)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, 0, fmt.Errorf("%w, or rejected this rank: %w", transport.ErrPeerLost, err)
	}
	at = binary.LittleEndian.Uint64(b)
	if !hmac.Equal(b, reply(to, at, secret)) {
		return nil, 0, errRejected
	}
	return b, at, nil
}

func mac(secret, b []byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write(b)
	return m.Sum(nil)
}
