package mtls

import (
	"crypto/x509"
	"slices"
	"strings"
)

// Roles are organizational units (OU) of certificates. Each one may do what the ones before it may, except that only
// ranks, and certificates without a role, attach to ports and operate nothing, or everything.
const (
	RoleRank     = "rank"     // attaches to a port, and operates nothing
	RoleViewer   = "viewer"   // reads
	RoleOperator = "operator" // also sets, enables and disables planes, begins and ends jobs
	RoleAdmin    = "admin"    // also changes the switch's ports of planes. A certificate without a role is an admin's
)

// Roles lists the roles, from the least to the greatest.
var Roles = []string{RoleRank, RoleViewer, RoleOperator, RoleAdmin}

// PlaneUnit begins the units that limit a certificate to planes: "plane:p0". Without such a unit it has all planes.
const PlaneUnit = "plane:"

// RoleOf returns the role of a certificate: if it has several, the least.
func RoleOf(c *x509.Certificate) string {
	for _, role := range Roles {
		if slices.Contains(c.Subject.OrganizationalUnit, role) {
			return role
		}
	}
	return RoleAdmin
}

// PlanesOf returns the names of the planes that a certificate is for; nil: for all.
func PlanesOf(c *x509.Certificate) (names []string) {
	for _, unit := range c.Subject.OrganizationalUnit {
		if name, is := strings.CutPrefix(unit, PlaneUnit); is {
			names = append(names, name)
		}
	}
	return names
}
