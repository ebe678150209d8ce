package rpc

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"lightpath/ocsctl/controller/rpc/ocspb"
	"lightpath/ocsctl/internal/mtls"
)

// The roles of certificates, for programs that make certificates.
const (
	RoleRank     = mtls.RoleRank
	RoleViewer   = mtls.RoleViewer
	RoleOperator = mtls.RoleOperator
	RoleAdmin    = mtls.RoleAdmin
)

// needs holds the least role of each method of the service for operators.
var needs = map[string]string{
	"Status": RoleViewer, "History": RoleViewer, "Watch": RoleViewer, "Ports": RoleViewer, "Remap": RoleAdmin,
}

// allowed checks a call against the role of the certificate.
func allowed(ctx context.Context, method string) error {
	c := certificate(ctx)
	if c == nil {
		return nil
	}
	role, name := mtls.RoleOf(c), method[strings.LastIndexByte(method, '/')+1:]
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
	if slices.Index(mtls.Roles, role) >= slices.Index(mtls.Roles, need) {
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
	names := mtls.PlanesOf(c)
	switch {
	case names == nil:
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
