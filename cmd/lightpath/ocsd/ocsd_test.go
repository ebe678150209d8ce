package ocsd

import (
	"log/slog"
	"path/filepath"
	"testing"

	"lightpath/ocsctl/controller"
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

// servedPlane is a data plane that a core can be served on.
type servedPlane struct{ dataPlane }

func (servedPlane) serve(*controller.Core) (func(), error) { return func() {}, nil }

// TestLeaderWithoutServiceManager: a controller that comes into charge serves, even if the service manager is gone.
func TestLeaderWithoutServiceManager(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
	s := &service{o: &fabric.OCSD{}, f: &fabric.Fabric{}, data: servedPlane{}, log: slog.New(slog.DiscardHandler)}
	if stop, err := s.serveLocal(nil); err != nil || stop == nil {
		t.Errorf("%v", err)
	}
}
