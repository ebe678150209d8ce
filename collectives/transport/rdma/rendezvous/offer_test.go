package rendezvous

import "testing"

// FuzzOffer: what is taken for an offer is one, to the byte.
func FuzzOffer(f *testing.F) {
	b := make([]byte, offerSize)
	(&offer{1, 2, 3, 4, 5}).encode(b)
	f.Add(b)
	f.Add(b[1:])
	f.Fuzz(func(t *testing.T, b []byte) {
		var o offer
		if o.decode(b) != nil {
			return
		}
		again := make([]byte, offerSize)
		o.encode(again)
		if string(again) != string(b) {
			t.Errorf("%x is read as %+v, which is %x", b, o, again)
		}
	})
}

// TestOfferBits: no bit of an offer can change unseen.
func TestOfferBits(t *testing.T) {
	b := make([]byte, offerSize)
	(&offer{1, 2, 3, 4, 5}).encode(b)
	for i := range 8 * offerSize {
		b[i/8] ^= 1 << (i % 8)
		var o offer
		if o.decode(b) == nil {
			t.Errorf("bit %d", i)
		}
		b[i/8] ^= 1 << (i % 8)
	}
}
