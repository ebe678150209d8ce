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

// planesOf returns the names of the planes that the certificate of a call is for; nil: all.
func planesOf(ctx context.Context) []string {
	if c := certificate(ctx); c != nil {
		return mtls.PlanesOf(c)
	}
	return nil
}

// allowedPlanes checks planes against those of the certificate, and returns their names.
func (s *Server) allowedPlanes(ctx context.Context, planes ...uint32) (names []string, err error) {
	own := planesOf(ctx)
	for _, j := range planes {
		if err := s.checkPlane(j); err != nil {
			return nil, err
		}
		name := s.o.Planes[j].Name
		if own != nil && !slices.Contains(own, name) {
			return nil, fmt.Errorf("the certificate of %s is for planes %v, not for %s: %w", identity(ctx), own, name,
				ErrForbidden)
		}
		names = append(names, name)
	}
	return names, nil
}

// allowedJobs returns an error if the certificate is for some planes only: a job may be on any.
func allowedJobs(ctx context.Context) error {
	if own := planesOf(ctx); own != nil {
		return fmt.Errorf("the certificate of %s is for planes %v only: %w", identity(ctx), own, ErrForbidden)
	}
	return nil
}
