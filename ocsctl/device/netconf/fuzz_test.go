package netconf

import (
	"context"
	"testing"

	"lightpath/internal/require"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/driver/netconf/wire"
)

// FuzzRequests: whatever a client asks, the answer is one, and the switch has a map.
func FuzzRequests(f *testing.F) {
	const open, shut = `<rpc message-id="1" xmlns="` + wire.BaseNS + `" xmlns:o="` + wire.OpticalNS + `" xmlns:nc="` +
		wire.BaseNS + `">`, `</rpc>`
	for _, op := range []string{
		`<get><filter><o:cross-connects><o:pair><o:ingress>1</o:ingress><o:egress/></o:pair></o:cross-connects>` +
			`</filter></get>`,
		`<edit-config><target><candidate/></target><config><o:cross-connects nc:operation="replace">` +
			`<o:pair><o:ingress>1</o:ingress><o:egress>5</o:egress></o:pair></o:cross-connects></config></edit-config>`,
		`<edit-config><target><candidate/></target><default-operation>none</default-operation><config>` +
			`<o:opm-config><o:port><o:port-id>5</o:port-id><o:averaging-time>2</o:averaging-time></o:port>` +
			`</o:opm-config></config></edit-config>`,
		`<commit><confirmed/><confirm-timeout>1</confirm-timeout><persist>a</persist></commit>`,
		`<cancel-commit><persist-id>a</persist-id></cancel-commit>`,
		`<lock><target><running/></target></lock>`, `<validate><source><candidate/></source></validate>`,
	} {
		f.Add([]byte(open+op+shut), true)
	}
	f.Fuzz(func(t *testing.T, msg []byte, candidate bool) {
		d, err := device.New(device.Config{Ports: 4, Preset: "plzt-ns"})
		require.NoError(t, err)
		defer d.Close()
		s, err := New(d, Config{Candidate: candidate})
		require.NoError(t, err)
		defer s.Close() //nolint:errcheck // it returns nil
		for range 2 {
			reply, _ := s.answer(context.Background(), 1, msg)
			if _, err := wire.ParseReply(reply.Append(nil)); err != nil {
				t.Fatalf("%s: %v", reply, err)
			}
			// refused where there is nothing to commit
			_, _ = s.operate(context.Background(), 1, wire.New(wire.BaseNS, "commit"))
		}
		require.NoError(t, d.Map().Validate(4))
	})
}
