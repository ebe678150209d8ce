package ocsd

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

	"lightpath/cmd/lightpath/cli"
	"lightpath/internal/files"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/device/gnmi"
	"lightpath/ocsctl/device/netconf"
	"lightpath/ocsctl/device/scpi"
	"lightpath/ocsctl/driver/gnmi/dialect"
)

// coldBoots are the values of --cold-boot.
var coldBoots = map[string]device.ColdBoot{"remove": device.Remove, "restore": device.Restore,
	"maintain": device.Maintain}

// emulateFlags configure how protocols are served.
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
	{"scpi", "serve SCPI, as Polatis switches do, at this address of this host", func(ctx context.Context, l net.Listener,
		d *device.Device, _ emulateFlags) error {
		return scpi.Serve(ctx, l, d)
	}},
	{"gnmi", "serve gNMI at this address of this host", func(ctx context.Context, l net.Listener, d *device.Device,
		o emulateFlags) error {
		return gnmi.Serve(ctx, l, d, gnmi.Options{Dialect: o.dialect})
	}},
	{"netconf", "serve NETCONF over SSH, as Polatis switches do, at this address of this host; needs --user and " +
		"--password-file", serveNETCONF},
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
	if o.passwordFile == "" {
		return fail(errors.New("--netconf: --password-file is required"))
	}
	password, err := files.ReadSecret(o.passwordFile)
	if err != nil {
		return fail(fmt.Errorf("--password-file: %w", err))
	}
	s, err := netconf.New(d, netconf.Config{Mode: device.Bulk,
		Users: map[string]netconf.User{o.user: {Password: strings.TrimRight(string(password), "\r\n")}}})
	if err != nil {
		return fail(err)
	}
	if o.knownHosts != "" {
		line := knownhosts.Line([]string{knownhosts.Normalize(l.Addr().String())}, s.HostKey())
		if err := cli.WriteOutput("known-hosts", o.knownHosts, []byte(line+"\n")); err != nil {
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

// emulation holds the options of ocs emulate.
type emulation struct {
	device       device.Config
	faults, boot string
	serve        emulateFlags
	addresses    []string // by protocol
	fabric, ocs  string   // planes in the kernel that follow
}

// NewEmulate returns the command "ocs emulate". The root adds it to those of operators.
func NewEmulate() *cobra.Command {
	e := emulation{addresses: make([]string, len(deviceServers))}
	cmd := &cobra.Command{
		Use:   "emulate --ports 16 --scpi 127.0.0.1:5025",
		Short: "Serve a model of a real switch in the protocols of real switches",
		Long: `Serves one model of an optical circuit switch in the requested protocols, until it is interrupted.
The model has delays, port states, optical power and, with --faults, faults. It carries no data by itself.
With --fabric, the planes that "lightpath fabric up" has built in the kernel follow it, so commands and faults
move real packets.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.run(cmd.Context()) },
	}
	fl := cmd.Flags()
	fl.IntVar(&e.device.Ports, "ports", 16, "ports of each side")
	fl.StringVar(&e.device.Preset, "preset", "", "kind of switch: "+strings.Join(slices.Sorted(maps.Keys(device.Presets)),
		", ")+
		" (default "+device.DefaultPreset+", or with --fabric one that takes exactly the reconfiguration time of the file)")
	fl.Uint64Var(&e.device.Seed, "seed", 0, "seed of delays and losses")
	fl.BoolVar(&e.device.BreakConflicts, "break-conflicts", false,
		"break circuits that conflict with new ones, instead of refusing the new ones")
	fl.StringVar(&e.boot, "cold-boot", "remove",
		"circuits after a reboot: remove, restore or maintain; with --fabric, all but remove begin with the present circuits")
	fl.StringVar(&e.faults, "faults", "", "fault script; SIGHUP reads it and starts it again")
	fl.StringVar(&e.serve.dialect, "dialect", "", "dialect of gNMI: "+strings.Join(dialect.Names(),
		", ")+" (default the first)")
	fl.StringVar(&e.serve.user, "user", "", "user name of NETCONF")
	fl.StringVar(&e.serve.passwordFile, "password-file", "", "file of the password of NETCONF")
	fl.StringVar(&e.serve.knownHosts, "known-hosts", "", "write the host key of NETCONF here, as a file of known hosts")
	fl.StringVar(&e.fabric, "fabric", "",
		"fabric file: its planes in the kernel follow the model, by the ports that the file gives")
	fl.StringVar(&e.ocs, "ocs", "", "name of this switch in the fabric, if the fabric has several")
	for i, s := range deviceServers {
		fl.StringVar(&e.addresses[i], s.name, "", s.usage)
	}
	return cmd
}

// run serves until the context ends.
func (e *emulation) run(ctx context.Context) error {
	var ok bool
	if e.device.ColdBoot, ok = coldBoots[e.boot]; !ok {
		return fmt.Errorf("--cold-boot %s: not remove, restore or maintain", e.boot)
	}
	var kernelPlanes *mirrored
	if e.fabric != "" {
		var err error
		if kernelPlanes, err = openMirrored(e.fabric, e.ocs); err != nil {
			return err
		}
		defer cli.HangUp(kernelPlanes.board)
		if err := kernelPlanes.prepare(&e.device); err != nil {
			return err
		}
	}
	d, err := device.New(e.device)
	if err != nil {
		return err
	}
	defer d.Close()
	if kernelPlanes != nil {
		mirror, err := kernelPlanes.follow(d)
		if err != nil {
			return err
		}
		defer cli.HangUp(mirror)
	}
	listeners, err := listenAll(e.addresses)
	if err != nil {
		return err
	}
	if e.faults != "" {
		faults, err := startFaults(func() ([]byte, error) { return cli.ReadInput("faults", e.faults) }, []*device.Device{d},
			func(text string) {
				fmt.Fprintln(os.Stderr, "ocs: fault:", text)
			})
		if err != nil {
			closeAll(listeners)
			return err
		}
		defer faults.stop()
	}
	return emulate(ctx, d, listeners, e.serve)
}

// listenAll opens a listener per address, and returns nil for an empty address. The protocols are served without
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
			closeAll(all)
			return nil, fmt.Errorf("--%s %s: %w", deviceServers[i].name, address, err)
		}
	}
	if !any {
		return nil, errors.New("nothing to serve: give --scpi, --gnmi or --netconf")
	}
	return all, nil
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		if l != nil {
			l.Close()
		}
	}
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
