package messages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Offer tells the sender of a message that the receiver waits for it, and where a sender that writes into the
// receiver's memory writes it.
type Offer struct {
	Tag    uint32 // of the call, equal at both ranks
	Key    uint32
	Number uint64 // of the message
	At     uint64 // address of the receiver's memory
	Bytes  uint64
}

// OfferSize is the size of an encoded offer in bytes.
const OfferSize = 48

const offerMagic = 0x5652504c

// Encode writes the offer, little endian, with a checksum over the fields.
func (o *Offer) Encode(b []byte) {
	le := binary.LittleEndian
	clear(b[:OfferSize])
	le.PutUint32(b, offerMagic)
	le.PutUint32(b[4:], o.Tag)
	le.PutUint64(b[8:], o.Number)
	le.PutUint64(b[16:], o.At)
	le.PutUint64(b[24:], o.Bytes)
	le.PutUint32(b[32:], o.Key)
	le.PutUint32(b[36:], crc32.ChecksumIEEE(b[:36]))
}

// ErrOffer reports bytes that are no offer, or an offer of another message than the next one.
var ErrOffer = errors.New("not an offer")

// Decode checks and reads an offer. Hot path: no allocation.
func (o *Offer) Decode(b []byte) error {
	le := binary.LittleEndian
	if len(b) != OfferSize || le.Uint32(b) != offerMagic || le.Uint32(b[36:]) != crc32.ChecksumIEEE(b[:36]) ||
		le.Uint64(b[40:]) != 0 {
		return ErrOffer
	}
	*o = Offer{le.Uint32(b[4:]), le.Uint32(b[32:]), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:])}
	return nil
}

// Match decodes the offer of a peer and compares it with the sender's own message. It returns [ErrMismatch] if the
// ranks made different calls. Hot path: no allocation.
func (o *Offer) Match(b []byte, peer int, number uint64, tag uint32, bytes uint64) error {
	switch err := o.Decode(b); {
	case err != nil:
		return fmt.Errorf("offer %d: %w", number, err)
	case o.Number != number:
		return fmt.Errorf("offer %d: %w: it is for message %d", number, ErrOffer, o.Number)
	case o.Tag != tag:
		return fmt.Errorf("%w: message %d belongs to call %#x here and to call %#x at rank %d", ErrMismatch, number, tag,
			o.Tag, peer)
	case o.Bytes != bytes:
		return fmt.Errorf("%w: message %d has %d bytes here and %d at rank %d", ErrMismatch, number, bytes, o.Bytes, peer)
	}
	return nil
}
