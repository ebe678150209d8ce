package local

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"lightpath/ocsctl"
	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

func TestMessagesSurviveTheWire(t *testing.T) {
	for _, m := range []*message{
		{Type: msgHello, Version: 1, Port: 3},
		{Type: msgPost, Plane: 63, Epoch: 1<<32 - 1, Target: circuit.AllDark(controller.MaxPorts)},
		{Type: msgAcquire, ID: 7, Mask: 1<<64 - 1, Holder: 1<<64 - 1}, {Type: msgError, Text: "plane 1: \x00\u2028"},
		{Type: msgWelcome, Version: 1, Fabric: &fabricInfo{Ports: 8, DataPlane: ocsctl.DataMemory, Rings: &RingsInfo{64, 4096,
			1 << 20}, Planes: []ocsctl.PlaneInfo{{Name: "p0", BandwidthBitsPerSec: 2e9, Reconfig: 1, ReconfigPerPort: 2}}}},
	} {
		b, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeMessage(b[4:])
		if err != nil || !reflect.DeepEqual(got, m) || int(binary.BigEndian.Uint32(b)) != len(b)-4 {
			t.Errorf("%+v came back as %+v, %v", m, got, err)
		}
	}
	if _, err := (&message{Type: msgError, Text: strings.Repeat("x", maxMessage)}).encode(); !errors.Is(err, ErrProtocol) {
		t.Error("a message beyond the bound was encoded")
	}
}

func TestDecodeIsStrict(t *testing.T) {
	for _, bad := range []string{
		``, `{}`, `null`, `[]`, `{"type":"bye"}`, `{"type":"watch"} {}`, `{"type":"watch"}x`, `{"type":"watch","extra":1}`,
		`{"type":"post","plane":1.5}`, `{"type":"post","epoch":-1}`, `{"type":"post","epoch":4294967296}`,
		`{"type":"post","target":"all"}`,
	} {
		if m, err := decodeMessage([]byte(bad)); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %+v, %v", bad, m, err)
		}
	}
}

func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"type":"hello","version":1,"port":3}`))
	f.Add([]byte(`{"type":"post","plane":1,"epoch":2,"target":[1,2,3,0]}`))
	f.Add([]byte(`{"type":"acquire","id":1,"mask":3,"holder":18446744073709551615}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMessage(b)
		if err != nil {
			return
		}
		again, err := m.encode()
		if err != nil {
			return
		}
		n, err := decodeMessage(again[4:])
		if err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		if third, _ := n.encode(); !bytes.Equal(again, third) {
			t.Fatalf("%s became %s", again, third)
		}
	})
}

// TestLargestLease: the largest lease that a controller accepts fits a message.
func TestLargestLease(t *testing.T) {
	const planes = 2
	ports := slices.Repeat([]int{0}, controller.MaxPorts)
	m := circuit.Shift(len(ports), 1)
	for i := range ports {
		ports[i] = len(ports) - 1 - i
	}
	l := ocsctl.Lease{Mask: 1<<planes - 1, Holder: 1<<64 - 1, Ports: ports,
		Circuits: slices.Repeat([]circuit.Permutation{m}, planes)}
	if err := l.Check(len(ports), planes); err != nil || planes*len(ports) != ocsctl.MaxCircuits {
		t.Fatalf("%d circuits of at most %d: %v", planes*len(ports), ocsctl.MaxCircuits, err)
	}
	if _, err := (&message{Type: msgAcquire, ID: 1<<64 - 1, Lease: &l}).encode(); err != nil {
		t.Error(err)
	}
}
