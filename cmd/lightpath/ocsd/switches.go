package ocsd

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/registry"
	"lightpath/ocsctl/switches"
	"lightpath/plans/fabric"
)

// switchDevice is the controller's device of a fabric whose planes are on real switches. tables holds the
// ports of each plane, by rank. prober verifies to driver.Token; it is nil if nothing can. token is the controller's
// fencing token.
func switchDevice(f *fabric.Fabric, tables [][]string, c fabric.SwitchesConfig, prober switches.Prober, token uint64,
	log *slog.Logger) (*switches.Device, error) {
	config := switches.Config{Prober: prober, Token: token, Logger: log, DriftInterval: c.DriftInterval,
		MoveTimeout: max(switches.DefaultMoveTimeout, 3*c.Settle)}
	if c.Verify != "" {
		if err := config.Verify.UnmarshalText([]byte(c.Verify)); err != nil {
			return nil, fmt.Errorf("switches.verify: %w", err)
		}
	}
	byName := make(map[string]*fabric.OCS)
	for j, p := range f.Planes {
		labels := tables[j]
		sw := f.Switch(j)
		ports, err := registry.Ports(sw, labels)
		if err == nil {
			_, err = registry.Ports(sw, slices.Concat(labels, p.Spares)) // all have one form
		}
		if err != nil {
			return nil, fmt.Errorf("plane %s: %w", p.Name, err)
		}
		byName[sw.Name] = sw
		config.Planes = append(config.Planes, switches.Plane{
			Name: p.Name, Switch: sw.Name, Ports: ports, Reconfig: sw.Reconfig + time.Duration(f.Ranks)*sw.ReconfigPerPort,
		})
	}
	target := switchTarget(c)
	config.Open = func(ctx context.Context, name string, ports driver.Ports) (driver.Switch, error) {
		return registry.Connect(ctx, byName[name], ports, target)
	}
	return switches.New(config)
}

// switchTarget returns the settings of the controller's file for connections to switches.
func switchTarget(c fabric.SwitchesConfig) driver.Target {
	return driver.Target{
		Timeout: c.ReplyTimeout, Tolerance: driver.Tolerance{Settle: c.Settle}, Insecure: c.InsecureSCPI,
		CAFile: c.TLS.CA, CertFile: c.TLS.Cert, KeyFile: c.TLS.Key,
		User: c.User, PasswordFile: c.PasswordFile, KnownHostsFile: c.KnownHosts,
	}
}
