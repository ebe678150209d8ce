package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"lightpath/ocsctl/device"
	"lightpath/ocsctl/device/gnmi"
	"lightpath/ocsctl/device/netconf"
	"lightpath/ocsctl/device/scpi"
	"lightpath/ocsctl/driver/gnmi/dialect"
)

// coldBoots are the values of --cold-boot.
var coldBoots = map[string]device.ColdBoot{"remove": device.Remove, "restore": device.Restore, "maintain": device.Maintain}

// emulateFlags say how protocols are served.
type emulateFlags struct {
	dialect                        string // of gNMI
	user, passwordFile, knownHosts string // of NETCONF
}

// deviceServer serves a device model in one protocol.
type deviceServer struct {
	name, usage string
	serve       func(ctx context.Context, l net.Listener, d *device.Device, o emulateFlags) error
}

// deviceServers are the protocols of ocs emulate.
var deviceServers = []deviceServer{
	{"scpi", "serve SCPI, as Polatis switches do, at this address of this host", func(ctx context.Context, l net.Listener, d *device.Device, _ emulateFlags) error {
		return scpi.Serve(ctx, l, d)
	}},
	{"gnmi", "serve gNMI at this address of this host", func(ctx context.Context, l net.Listener, d *device.Device, o emulateFlags) error {
		return gnmi.Serve(ctx, l, d, gnmi.Options{Dialect: o.dialect})
	}},
	{"netconf", "serve NETCONF over SSH, as Polatis switches do, at this address of this host; needs --user and --password-file", serveNETCONF},
}

// serveNETCONF serves with a fresh host key, which it writes where clients look for it.
func serveNETCONF(ctx context.Context, l net.Listener, d *device.Device, o emulateFlags) error {
	fail := func(err error) error {
		l.Close()
		return err
	}
	if o.user == "" {
		return fail(errors.New("--netconf: --user is required"))
	}
	password, err := readInput("password-file", o.passwordFile)
	if err != nil {
		return fail(err)
	}
	s, err := netconf.New(d, netconf.Config{Mode: device.Bulk, Users: map[string]netconf.User{o.user: {Password: strings.TrimRight(string(password), "\r\n")}}})
	if err != nil {
		return fail(err)
	}
	if o.knownHosts != "" {
		line := knownhosts.Line([]string{knownhosts.Normalize(l.Addr().String())}, s.HostKey())
		if err := writeOutput("known-hosts", o.knownHosts, []byte(line+"\n")); err != nil {
			return fail(err)
		}
	}
	fmt.Fprintf(os.Stderr, "ocs: netconf host key %s\n", ssh.FingerprintSHA256(s.HostKey()))
	ended := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { ended <- s.Close() })
	if err = s.Serve(l); stop() {
		return errors.Join(err, s.Close())
	}
	return <-ended
}

func newOCSEmulate() *cobra.Command {
	c := device.Config{}
	var faults, boot string
	var o emulateFlags
	addresses := make([]string, len(deviceServers))
	cmd := &cobra.Command{
		Use:   "emulate --ports 16 --scpi 127.0.0.1:5025",
		Short: "Serve a model of a real switch in the protocols of real switches",
		Long: `Serves one model of an optical circuit switch, which has delays, port states, optical power and, with --faults,
faults, in the protocols asked for, until it is interrupted. It carries no data: "lightpath ocsd" does.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var ok bool
			if c.ColdBoot, ok = coldBoots[boot]; !ok {
				return fmt.Errorf("--cold-boot %s: not remove, restore or maintain", boot)
			}
			d, err := device.New(c)
			if err != nil {
				return err
			}
			defer d.Close()
			var script []device.Timed
			if faults != "" {
				data, err := readInput("faults", faults)
				if err != nil {
					return err
				}
				if script, err = device.ParseScript(data); err != nil {
					return err
				}
			}
			listeners, err := listenAll(addresses)
			if err != nil {
				return err
			}
			if err := d.Run(script); err != nil {
				return errors.Join(err, closeAll(listeners))
			}
			return emulate(cmd.Context(), d, listeners, o)
		},
	}
	fl := cmd.Flags()
	fl.IntVar(&c.Ports, "ports", 16, "ports of each side")
	fl.StringVar(&c.Preset, "preset", device.DefaultPreset, "kind of switch: "+strings.Join(slices.Sorted(maps.Keys(device.Presets)), ", "))
	fl.Uint64Var(&c.Seed, "seed", 0, "seed of delays and losses")
	fl.BoolVar(&c.BreakConflicts, "break-conflicts", false, "break circuits that are in the way of new ones instead of refusing those")
	fl.StringVar(&boot, "cold-boot", "remove", "circuits after a reboot: remove, restore or maintain")
	fl.StringVar(&faults, "faults", "", "fault script")
	fl.StringVar(&o.dialect, "dialect", "", "dialect of gNMI: "+strings.Join(dialect.Names(), ", ")+" (default the first)")
	fl.StringVar(&o.user, "user", "", "user name of NETCONF")
	fl.StringVar(&o.passwordFile, "password-file", "", "file of the password of NETCONF")
	fl.StringVar(&o.knownHosts, "known-hosts", "", "write the host key of NETCONF here, as a file of known hosts")
	for i, s := range deviceServers {
		fl.StringVar(&addresses[i], s.name, "", s.usage)
	}
	return cmd
}

// listenAll opens a listener per address, nil where there is none. The protocols are served without
// authentication, so they stay on this host.
func listenAll(addresses []string) ([]net.Listener, error) {
	all := make([]net.Listener, len(addresses))
	any := false
	for i, address := range addresses {
		if address == "" {
			continue
		}
		any = true
		host, _, err := net.SplitHostPort(address)
		if ip := net.ParseIP(host); err == nil && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			err = errors.New("the model is for this host: its address is 127.0.0.1, ::1 or localhost")
		}
		if err == nil {
			all[i], err = net.Listen("tcp", address)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("--%s %s: %w", deviceServers[i].name, address, err), closeAll(all))
		}
	}
	if !any {
		return nil, errors.New("nothing to serve: give --scpi, --gnmi or --netconf")
	}
	return all, nil
}

func closeAll(listeners []net.Listener) error {
	for _, l := range listeners {
		if l != nil {
			l.Close()
		}
	}
	return nil
}

// emulate serves until the context ends or a server fails.
func emulate(ctx context.Context, d *device.Device, listeners []net.Listener, o emulateFlags) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error, len(listeners))
	running := 0
	i := d.Info()
	fmt.Fprintf(os.Stderr, "ocs: %s %s, %d ports\n", i.Vendor, i.Model, d.Ports())
	for k, l := range listeners {
		if l == nil {
			continue
		}
		running++
		fmt.Fprintf(os.Stderr, "ocs: %s on %s\n", deviceServers[k].name, l.Addr())
		go func() { results <- deviceServers[k].serve(ctx, l, d, o) }()
	}
	var failed error
	for range running {
		failed = errors.Join(failed, <-results)
		cancel()
	}
	return failed
}
