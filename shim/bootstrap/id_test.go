package bootstrap

import (
	"errors"
	"net/netip"
	"testing"

	"lightpath/shim/control"
	"lightpath/shim/errdefs"
)

// FuzzID: an id is refused or gives back what it was made from.
func FuzzID(f *testing.F) {
	id := makeID(netip.MustParseAddrPort("[2001:db8::1]:4000"), control.Secret{1, 2})
	f.Add(id[:])
	f.Fuzz(func(t *testing.T, in []byte) {
		var id UniqueID
		copy(id[:], in)
		addr, s, err := ParseID(&id)
		if err == nil && makeID(addr, s) != id {
			t.Fatalf("% x is not what %v makes", id, addr)
		}
	})
}

func TestIDRoundTrip(t *testing.T) {
	for _, text := range []string{"127.0.0.1:80", "10.1.2.3:65535", "[2001:db8::1]:1"} {
		want := netip.MustParseAddrPort(text)
		id := makeID(want, control.Secret{5})
		got, s, err := ParseID(&id)
		if err != nil || got != want || s != (control.Secret{5}) {
			t.Errorf("%s: %v %v %v", text, got, s, err)
		}
		for i := range id {
			id[i] ^= 0x40
			if _, _, err := ParseID(&id); !errors.Is(err, errdefs.ErrInvalidArgument) {
				t.Fatalf("byte %d changed: %v", i, err)
			}
			id[i] ^= 0x40
		}
	}
}
