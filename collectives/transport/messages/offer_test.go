package messages

import "testing"

// FuzzOffer decodes arbitrary bytes. Encoding a decoded offer must restore the same bytes.
func FuzzOffer(f *testing.F) {
	b := make([]byte, OfferSize)
	(&Offer{1, 2, 3, 4, 5}).Encode(b)
	f.Add(b)
	f.Add(b[1:])
	f.Fuzz(func(t *testing.T, b []byte) {
		var o Offer
		if o.Decode(b) != nil {
			return
		}
		again := make([]byte, OfferSize)
		o.Encode(again)
		if string(again) != string(b) {
			t.Errorf("%x decodes to %+v, which encodes to %x", b, o, again)
		}
	})
}

// TestDecodeDetectsDamage flips every bit of an offer.
func TestDecodeDetectsDamage(t *testing.T) {
	b := make([]byte, OfferSize)
	(&Offer{1, 2, 3, 4, 5}).Encode(b)
	for i := range 8 * OfferSize {
		b[i/8] ^= 1 << (i % 8)
		var o Offer
		if o.Decode(b) == nil {
			t.Errorf("bit %d flipped: accepted", i)
		}
		b[i/8] ^= 1 << (i % 8)
	}
}
