package ocsd

import (
	"testing"

	"lightpath/plans/fabric"
)

// TestWhereTheControllerIs: a page with certificates is announced with its scheme.
func TestWhereTheControllerIs(t *testing.T) {
	s := &service{o: &fabric.OCSD{Socket: "/run/ocs", Listen: "10.0.0.1:7443", HTTP: "10.0.0.1:7480"}}
	if got, want := s.where(), "/run/ocs, gRPC 10.0.0.1:7443, http://10.0.0.1:7480"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	s.o.TLS = fabric.TLS{CA: "ca.pem", Cert: "ocs1.pem", Key: "ocs1.key"}
	if got, want := s.where(), "/run/ocs, gRPC 10.0.0.1:7443, https://10.0.0.1:7480"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
