package tcp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// A connection begins with a hello from the rank that dials, which proves knowledge of the
// communicator's secret, and a reply that proves the same of the rank that accepts.
//
// Hello, little endian: magic u64, version u32, comm u64, ranks u32, planes u32, from u32,
// to u32, plane u32, nonce [16]byte, HMAC-SHA256 [32]byte of what precedes it. Reply: the
// HMAC of the hello's HMAC.
const (
	helloMagic   = 0x4f4c4c454854504c // "LPTHELLO"
	helloVersion = 1
	macSize      = sha256.Size
	helloBody    = 8 + 4 + 8 + 5*4 + 16
	helloSize    = helloBody + macSize
	replySize    = macSize
)

// SecretSize is the size of the secret that the ranks of a communicator share.
const SecretSize = 16

var errStranger = errors.New("not a rank of this communicator")

// hello says which connection of the mesh this is to be.
type hello struct {
	comm          uint64
	ranks, planes uint32
	from, to      uint32
	plane         uint32
}

// seal returns the hello's encoding with a fresh nonce.
func (h hello) seal(secret []byte) ([]byte, error) {
	le := binary.LittleEndian
	b := make([]byte, 0, helloSize)
	b = le.AppendUint64(b, helloMagic)
	b = le.AppendUint32(b, helloVersion)
	b = le.AppendUint64(b, h.comm)
	for _, v := range []uint32{h.ranks, h.planes, h.from, h.to, h.plane} {
		b = le.AppendUint32(b, v)
	}
	b = b[:helloBody]
	if _, err := rand.Read(b[helloBody-16:]); err != nil {
		return nil, err
	}
	return append(b, mac(secret, b)...), nil
}

// open checks an encoded hello and returns what it says.
func openHello(b, secret []byte) (h hello, err error) {
	le := binary.LittleEndian
	if len(b) != helloSize || le.Uint64(b) != helloMagic {
		return h, fmt.Errorf("%w: no hello", errStranger)
	}
	if v := le.Uint32(b[8:]); v != helloVersion {
		return h, fmt.Errorf("%w: version %d, this is %d", errStranger, v, helloVersion)
	}
	if !hmac.Equal(b[helloBody:], mac(secret, b[:helloBody])) {
		return h, fmt.Errorf("%w: wrong secret", errStranger)
	}
	h.comm = le.Uint64(b[12:])
	for i, v := range []*uint32{&h.ranks, &h.planes, &h.from, &h.to, &h.plane} {
		*v = le.Uint32(b[20+4*i:])
	}
	return h, nil
}

// reply answers a sealed hello.
func reply(sealed, secret []byte) []byte { return mac(secret, sealed[helloBody:]) }

func mac(secret, b []byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write(b)
	return m.Sum(nil)
}
