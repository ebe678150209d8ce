package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// TestRoles: an agent moves circuits for controllers alone. Their certificates have no role, or that of an
// administrator.
func TestRoles(t *testing.T) {
	for _, c := range []struct {
		units []string
		may   bool
	}{
		{nil, true}, {[]string{"admin"}, true}, {[]string{"optics"}, true},
		{[]string{"rank"}, false}, {[]string{"viewer"}, false}, {[]string{"operator"}, false},
		{[]string{"admin", "viewer"}, false}, {[]string{"admin", "plane:p0"}, false},
	} {
		certificate := &x509.Certificate{Subject: pkix.Name{CommonName: "x", OrganizationalUnit: c.units}}
		info := credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}}}
		ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: info})
		_, err := authorize(ctx, nil, nil, func(context.Context, any) (any, error) { return nil, nil })
		if c.may != (err == nil) || err != nil && status.Code(err) != codes.PermissionDenied {
			t.Errorf("%v: %v", c.units, err)
		}
	}
}
