// Package registry maps the names in fabric files to the drivers of real switches.
//
// Layer: above the drivers and fabric files; it holds nothing but the table.
package registry

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/gnmi"
	"lightpath/ocsctl/driver/netconf"
	"lightpath/ocsctl/driver/scpi"
	"lightpath/plans/fabric"
)

// drivers by the name in a fabric file.
var drivers = map[string]driver.Open{
	gnmi.Name:    gnmi.Open,
	netconf.Name: netconf.Open,
	scpi.Name:    scpi.Open,
}

// Open connects to a switch with a driver, by name.
func Open(ctx context.Context, name string, t driver.Target) (driver.Switch, error) {
	open, ok := drivers[name]
	if !ok {
		return nil, fmt.Errorf("registry: there is no driver %q for switches, only %s", name,
			strings.Join(slices.Sorted(maps.Keys(drivers)), ", "))
	}
	return open(ctx, t)
}

// Ports reads the ports of a plane, by rank, as its fabric file has them. Only SCPI knows the egress port of an ingress
// port.
func Ports(sw *fabric.OCS, labels []string) (driver.Ports, error) {
	p, err := driver.ParsePorts(labels)
	if err == nil && p.Out == nil && sw.Driver != scpi.Name {
		err = fmt.Errorf("port %q: driver %s needs the form in/out", labels[0], sw.Driver)
	}
	return p, err
}

// Connect connects to a switch of a fabric. t holds the settings that the fabric file lacks.
func Connect(ctx context.Context, sw *fabric.OCS, ports driver.Ports, t driver.Target) (driver.Switch, error) {
	t.Endpoint, t.Dialect, t.Ports = sw.Endpoint, sw.Dialect, ports
	t.Insecure = t.Insecure && sw.Driver == fabric.DriverPolatis // it is for SCPI alone
	return Open(ctx, sw.Driver, t)
}
