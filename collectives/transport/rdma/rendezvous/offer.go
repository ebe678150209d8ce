package rendezvous

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// offer tells the sender of a message where to write it.
type offer struct {
	tag    uint32 // of the call, equal at both ranks
	key    uint32
	number uint64 // of the message
	at     uint64 // address of the receiver's memory
	bytes  uint64
}

const (
	offerSize  = 48
	offerMagic = 0x5652504c
)

// encode writes the offer, little endian, with a checksum over the fields.
func (o *offer) encode(b []byte) {
	le := binary.LittleEndian
	clear(b[:offerSize])
	le.PutUint32(b, offerMagic)
	le.PutUint32(b[4:], o.tag)
	le.PutUint64(b[8:], o.number)
	le.PutUint64(b[16:], o.at)
	le.PutUint64(b[24:], o.bytes)
	le.PutUint32(b[32:], o.key)
	le.PutUint32(b[36:], crc32.ChecksumIEEE(b[:36]))
}

var errOffer = errors.New("not an offer")

// decode checks and reads an offer. Hot path: no allocation.
func (o *offer) decode(b []byte) error {
	le := binary.LittleEndian
	if len(b) != offerSize || le.Uint32(b) != offerMagic || le.Uint32(b[36:]) != crc32.ChecksumIEEE(b[:36]) ||
		le.Uint64(b[40:]) != 0 {
		return errOffer
	}
	*o = offer{le.Uint32(b[4:]), le.Uint32(b[32:]), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:])}
	return nil
}
