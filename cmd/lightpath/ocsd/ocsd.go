package ocsd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"lightpath/cmd/lightpath/cli"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
	"lightpath/ocsctl/controller/journal/etcd"
	"lightpath/ocsctl/controller/journal/file"
	"lightpath/ocsctl/controller/lead"
	"lightpath/ocsctl/controller/local"
	"lightpath/ocsctl/controller/rpc"
	"lightpath/ocsctl/controller/web"
	"lightpath/plans/fabric"
	"lightpath/shim"
)

// New returns the command "ocsd".
func New() *cobra.Command {
	var config, plans string
	cmd := &cobra.Command{
		Use:   "ocsd --config ocsd.yaml",
		Short: "Run the controller of a fabric's switches, real or emulated",
		Long: `Runs the controller of a fabric until it is interrupted. It grants planes, holds the barrier of every
reconfiguration and is the one writer of the switches. Ranks on this host use its Unix socket; other ranks and
operators use gRPC; browsers and Prometheus use HTTP. docs/fabric.md describes the configuration,
docs/operations.md how to run it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if config == "" {
				return errors.New("--config is required")
			}
			o, f, err := fabric.LoadOCSD(config)
			if err != nil {
				return fmt.Errorf("--config: %w", err)
			}
			s := &service{o: o, f: f, config: config, plans: plans, log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
			return s.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "configuration file")
	cmd.Flags().StringVar(&plans, "plans", "",
		"directory of cached plans that the page shows beside what happened (LIGHTPATH_PLAN_DIR of the jobs)")
	return cmd
}

// service is one controller of a fabric, in charge or standing by.
type service struct {
	o      *fabric.OCSD
	f      *fabric.Fabric
	config string // file
	plans  string // directory, "" for none
	log    *slog.Logger
	data   dataPlane
	page   atomic.Pointer[web.Server] // nil without HTTP
}

// standbyAfter is how long a controller has to come into charge before it counts as standing by.
const standbyAfter = 5 * time.Second

// run serves until ctx ends.
func (s *service) run(ctx context.Context) error {
	if s.o.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("name: %w", err)
		}
		s.o.Name = host
	}
	store, err := s.openStore(ctx)
	if err != nil {
		return err
	}
	defer cli.HangUp(store)
	group, ctx := errgroup.WithContext(ctx)
	s.data = s.dataPlane()
	runner, err := lead.New(lead.Options{
		Name: s.o.Name, Address: s.o.Listen, Store: store, Ports: s.f.Ranks, Planes: len(s.f.Planes), Logger: s.log,
		Build: s.data.build, OnLeader: s.serveLocal,
		OnEnd: func() {
			if err := s.data.close(); err != nil {
				s.log.Warn("planes", "error", err)
			}
		},
	})
	if err != nil {
		return err
	}
	if err := s.serveHTTP(ctx, group, runner, store); err != nil {
		return err
	}
	if err := s.serveRPC(ctx, group, runner, store); err != nil {
		return err
	}
	// A standby is ready, too: the service manager must not wait until it is in charge.
	standby := time.AfterFunc(standbyAfter, s.ready)
	defer standby.Stop()
	group.Go(func() error { return runner.Run(ctx) })
	err = group.Wait()
	if errors.Is(err, journal.ErrOtherFabric) {
		err = fmt.Errorf("%w; name another journal.dir or prefix, or move this one away: what it says of planes is "+
			"lost with it", err)
	}
	return errors.Join(err, cli.Notify(cli.Stopping), s.data.close())
}

// openStore opens the journal, which outlives this process.
func (s *service) openStore(ctx context.Context) (journal.Store, error) {
	j := &s.o.Journal
	observe := func(took time.Duration, err error) {
		if page := s.page.Load(); page != nil {
			page.ObserveJournal(took, err)
		}
	}
	switch s.o.JournalKind() {
	case fabric.JournalMemory:
		return journal.NewMemory(s.o.Name, journal.DefaultHistory), nil
	case fabric.JournalFile:
		return file.Open(file.Config{
			Name: s.o.Name, Address: s.o.Listen, Software: shim.Version, Dir: cmp.Or(j.Dir, defaultJournal(s.config)),
			Logger: s.log, OnWrite: observe,
		})
	}
	c := etcd.Config{
		Name: s.o.Name, Address: s.o.Listen, Software: shim.Version, Dir: j.Dir, Endpoints: j.Endpoints, CA: j.TLS.CA,
		Cert: j.TLS.Cert, Key: j.TLS.Key,
		Prefix: j.Prefix, Lease: j.Lease, Logger: s.log, OnWrite: observe,
	}
	if c.Dir == "" && c.Endpoints == nil {
		return nil, fmt.Errorf("journal: dir or endpoints: etcd needs one of them")
	}
	return etcd.Open(ctx, c)
}

// defaultJournal is the directory of the journal of a controller whose configuration names none: in the state
// directory that systemd gives to a service, else beside the configuration.
func defaultJournal(config string) string {
	if dir, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":"); dir != "" {
		return filepath.Join(dir, "journal")
	}
	return strings.TrimSuffix(config, filepath.Ext(config)) + ".journal"
}

// serveLocal serves a core to the ranks of this host.
func (s *service) serveLocal(core *controller.Core) (stop func(), err error) {
	if stop, err = s.data.serve(core); err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "ocsd: %d ports, %d planes, on %s\n", s.f.Ranks, len(s.f.Planes), s.where())
	s.ready()
	return stop, nil
}

// ready tells the service manager that this controller serves. A manager that does not hear it is no reason to end.
func (s *service) ready() {
	if err := cli.Notify(cli.Ready); err != nil {
		s.log.Warn("service manager", "error", err)
	}
}

// where lists what ranks and operators can connect to.
func (s *service) where() string {
	page := "http://"
	if s.o.TLS.CA != "" {
		page = "https://"
	}
	var all []string
	for _, e := range []struct{ kind, address string }{{"", s.o.Socket}, {"gRPC ", s.o.Listen}, {page, s.o.HTTP}} {
		if e.address != "" {
			all = append(all, e.kind+e.address)
		}
	}
	return strings.Join(all, ", ")
}

// serveSocket serves a core whose planes are not in this process.
func (s *service) serveSocket(core *controller.Core) (func(), error) {
	if s.o.Socket == "" {
		return func() {}, nil
	}
	server, err := local.Serve(core, local.Options{Socket: s.o.Socket, DataPlane: s.o.DataPlane, Version: shim.Version})
	if err != nil {
		return nil, err
	}
	return server.Close, nil
}

// serveRPC serves gRPC, whether this controller is in charge or not.
func (s *service) serveRPC(ctx context.Context, group *errgroup.Group, r *lead.Runner, h controller.History) error {
	if s.o.Listen == "" {
		return nil
	}
	l, err := net.Listen("tcp", s.o.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	o := rpc.ServerOptions{
		Controller: func() (controller.Controller, string) {
			c, _ := r.Controller()
			return c, r.Standby()
		},
		History: h, Ports: s.f.Ranks, DataPlane: s.o.DataPlane, Name: s.o.Name, Version: shim.Version,
		CA: s.o.TLS.CA, Cert: s.o.TLS.Cert, Key: s.o.TLS.Key, Log: s.log,
	}
	for _, p := range planeConfigs(s.f) {
		o.Planes = append(o.Planes, p.Info())
	}
	server, err := rpc.Serve(l, o)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	group.Go(func() error {
		select {
		case err := <-server.Done():
			return err
		case <-ctx.Done():
			server.Close()
			return nil
		}
	})
	return nil
}

// serveHTTP serves the page and metrics.
func (s *service) serveHTTP(ctx context.Context, group *errgroup.Group, r *lead.Runner, h controller.History) error {
	if s.o.HTTP == "" {
		return nil
	}
	o := web.Options{Name: s.o.Name, Version: shim.Version, Planes: s.f.PlaneNames(), Controller: r.Controller,
		History: h.History}
	if real, ok := s.data.(*realPlane); ok {
		o.Switches = real.seen
	}
	if s.plans != "" {
		o.Plans = cachedPlans(s.plans)
	}
	page, err := web.New(o)
	if err != nil {
		return err
	}
	s.page.Store(page)
	l, err := web.Listen(web.Endpoint{Address: s.o.HTTP, CA: s.o.TLS.CA, Cert: s.o.TLS.Cert, Key: s.o.TLS.Key, Log: s.log})
	if err != nil {
		return fmt.Errorf("http: %w", err)
	}
	group.Go(func() error { return page.Serve(ctx, l) })
	return nil
}

// planeConfigs returns a controller's configurations of the planes of a fabric.
func planeConfigs(f *fabric.Fabric) []controller.PlaneConfig {
	var all []controller.PlaneConfig
	for j, p := range f.Planes {
		sw := f.Switch(j)
		all = append(all, controller.PlaneConfig{
			Name: p.Name, BandwidthBitsPerSec: float64(p.Bandwidth), Reconfig: sw.Reconfig, ReconfigPerPort: sw.ReconfigPerPort,
			PinnedBy: f.PinnedBy,
		})
	}
	return all
}
