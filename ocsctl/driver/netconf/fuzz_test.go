package netconf

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"lightpath/internal/require"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/netconf/wire"
)

// FuzzAnswer: whatever a switch answers to a question about its map, there is a map or an
// error that says what is wrong, in one line.
func FuzzAnswer(f *testing.F) {
	const open, shut = `<rpc-reply message-id="1" xmlns="` + wire.BaseNS + `">`, `</rpc-reply>`
	data := wire.New(wire.BaseNS, "data",
		wire.CrossConnects([]wire.Pair{{Ingress: 1, Egress: 5}, {Ingress: 2, Egress: 6}}))
	f.Add([]byte(open + data.String() + shut))
	f.Add([]byte(open + "<ok/>" + shut))
	f.Add([]byte(open + (&wire.Error{Type: "protocol", Tag: "in-use", Message: "a\nb"}).Element().String() + shut))
	p, err := newPorts(driver.Ports{In: []string{"1", "2", "3"}, Out: []string{"5", "6", "7"}})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, answer []byte) {
		stream := struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(append(answer, "]]>]]>"...)), io.Discard}
		w := &swtch{ports: p, session: &session{conn: io.NopCloser(nil), framer: wire.NewFramer(stream, 1<<16),
			timeout: time.Minute}}
		m, err := w.read(context.Background(), w.call)
		switch {
		case err == nil:
			require.NoError(t, m.Validate(3))
		case !errors.Is(err, driver.ErrProtocol) && !errors.Is(err, driver.ErrRefused) &&
			!errors.Is(err, driver.ErrNotMatching):
			t.Fatalf("%v", err)
		case strings.Contains(err.Error(), "\n"):
			t.Fatalf("%q", err)
		}
	})
}

// TestHalfForeignCircuit: a circuit between a port of the map and another port is not taken for a dark port.
func TestHalfForeignCircuit(t *testing.T) {
	p, err := newPorts(driver.Ports{In: []string{"1", "2"}, Out: []string{"5", "6"}})
	require.NoError(t, err)
	for _, c := range []struct {
		row     wire.Pair
		foreign bool
	}{
		{wire.Pair{Ingress: 1, Egress: 6}, false}, {wire.Pair{Ingress: 3, Egress: 7}, false},
		{wire.Pair{Ingress: 1, Egress: 7}, true}, {wire.Pair{Ingress: 3, Egress: 6}, true},
	} {
		if m, err := p.matching([]wire.Pair{c.row}); errors.Is(err, driver.ErrNotMatching) != c.foreign {
			t.Errorf("%+v: %v, %v", c.row, m, err)
		}
	}
}
