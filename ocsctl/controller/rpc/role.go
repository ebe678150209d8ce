package rpc

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"

	"lightpath/ocsctl/controller/rpc/ocspb"
)

// Roles are organizational units (OU) of certificates. Each one may do what the ones before it may, except that only
// ranks, and certificates without a role, attach to ports and operate nothing, or everything.
const (
	RoleRank     = "rank"     // attaches to a port, and operates nothing
	RoleViewer   = "viewer"   // reads
	RoleOperator = "operator" // also sets, enables and disables planes, begins and ends jobs
	RoleAdmin    = "admin"    // also changes the switch's ports of planes. A certificate without a role is an admin's
)

// PlaneUnit begins the units that limit a certificate to planes: "plane:p0". Without such a unit it has all planes.
const PlaneUnit = "plane:"

// ranked lists the roles of operators, from the least to the greatest.
var ranked = []string{RoleRank, RoleViewer, RoleOperator, RoleAdmin}

// needs holds the least role of each method of the service for operators.
var needs = map[string]string{
	"Status": RoleViewer, "History": RoleViewer, "Watch": RoleViewer, "Ports": RoleViewer, "Remap": RoleAdmin,
}

// roleOf returns the role of a certificate: if it has several, the least.
func roleOf(c *x509.Certificate) string {
	for _, role := range ranked {
		if slices.Contains(c.Subject.OrganizationalUnit, role) {
			return role
		}
	}
	return RoleAdmin
}

// allowed checks a call against the role of the certificate.
func allowed(ctx context.Context, method string) error {
	c := certificate(ctx)
	if c == nil {
		return nil
	}
	role, name := roleOf(c), method[strings.LastIndexByte(method, '/')+1:]
	if !strings.HasPrefix(method, "/"+ocspb.Operators_ServiceDesc.ServiceName+"/") {
		if role == RoleViewer {
			return fmt.Errorf("%s: the certificate of %s is a viewer's: %w", name, identity(ctx), ErrForbidden)
		}
		return nil
	}
	need := needs[name]
	if need == "" {
		need = RoleOperator
	}
	if slices.Index(ranked, role) >= slices.Index(ranked, need) {
		return nil
	}
	return fmt.Errorf("%s: the certificate of %s has the role %s, and this needs %s: %w", name, identity(ctx), role, need,
		ErrForbidden)
}

// allowedPlanes checks planes against those of the certificate. all is a command on all planes.
func (s *Server) allowedPlanes(ctx context.Context, all bool, planes ...uint32) error {
	c := certificate(ctx)
	if c == nil {
		return nil
	}
	limited := false
	var names []string
	for _, unit := range c.Subject.OrganizationalUnit {
		if name, is := strings.CutPrefix(unit, PlaneUnit); is {
			limited = true
			names = append(names, name)
		}
	}
	switch {
	case !limited:
		return nil
	case all:
		return fmt.Errorf("the certificate of %s is for planes %v only: %w", identity(ctx), names, ErrForbidden)
	}
	for _, j := range planes {
		if err := s.checkPlane(j); err != nil {
			return err
		}
		if !slices.Contains(names, s.o.Planes[j].Name) {
			return fmt.Errorf("the certificate of %s is for planes %v, not for %s: %w", identity(ctx), names,
				s.o.Planes[j].Name, ErrForbidden)
		}
	}
	return nil
}
