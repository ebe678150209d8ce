package ocsd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"lightpath/cmd/lightpath/cli"
	"lightpath/internal/files"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/web"
	"lightpath/ocsctl/device"
	"lightpath/ocsctl/emulator"
	"lightpath/ocsctl/kernel"
	"lightpath/ocsctl/kernel/agent"
	"lightpath/ocsctl/switches"
	"lightpath/plans/circuit"
	"lightpath/plans/fabric"
	"lightpath/shim"
)

// dataPlane is the planes of a controller, and the way in which ranks of this host reach them.
type dataPlane interface {
	// build starts the core of a rule.
	build(rule controller.Config) (*controller.Core, error)
	// serve shows it to the ranks of this host; stop ends that.
	serve(*controller.Core) (stop func(), err error)
	// close releases the resources of build. The core has been closed before.
	close() error
}

func (s *service) dataPlane() dataPlane {
	switch s.o.DataPlane {
	case fabric.DataMemory:
		return &memoryPlane{s: s}
	case fabric.DataKernel:
		return &kernelPlane{s: s}
	default:
		return &realPlane{s: s}
	}
}

// memoryPlane is circuits in this process.
type memoryPlane struct {
	s      *service
	server *emulator.Server
}

func (p *memoryPlane) build(rule controller.Config) (_ *controller.Core, err error) {
	if err := p.close(); err != nil {
		return nil, err
	}
	c := emulatorConfig(p.s.o, p.s.f)
	c.Rule = rule
	if rule.Recovered != nil { // circuits in memory went with their process: they are made again
		c.Initial = make([]circuit.Permutation, len(c.Planes))
		for j := range rule.Recovered {
			c.Initial[j] = rule.Recovered[j].Map
		}
	}
	if p.server, err = emulator.Start(c); err != nil {
		return nil, err
	}
	return p.server.Core(), nil
}

func (p *memoryPlane) serve(*controller.Core) (func(), error) { return func() { _ = p.close() }, nil }

func (p *memoryPlane) close() error {
	if p.server == nil {
		return nil
	}
	server := p.server
	p.server = nil
	return server.Close()
}

func emulatorConfig(o *fabric.OCSD, f *fabric.Fabric) emulator.Config {
	return emulator.Config{
		Socket: o.Socket, Ports: f.Ranks, Planes: planeConfigs(f), Initial: o.Initial, MTU: o.MTU, Slots: o.Slots,
		FrameLog: o.FrameLog,
		Name:     o.Name, Version: shim.Version,
	}
}

// kernelPlane is circuits in the kernel, moved by models of switches.
type kernelPlane struct {
	s      *service
	board  closingPanel
	models []*device.Device
	faults *faultScript // nil without
	device *kernel.Device
}

func (p *kernelPlane) build(c controller.Config) (_ *controller.Core, err error) {
	if err := p.close(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	o, f := p.s.o, p.s.f
	if p.board, err = p.takeOver(&c); err != nil {
		return nil, err
	}
	if c.Recovered == nil {
		for j, m := range o.Initial {
			if err := p.board.Install(j, m); err != nil {
				return nil, err
			}
		}
	}
	var cables []kernel.Cable
	if p.models, cables, err = kernel.Models(p.board, f, o.Device.Preset, uint64(o.Device.Seed)); err != nil {
		return nil, err
	}
	if err := p.injectFaults(); err != nil {
		return nil, err
	}
	if p.device, err = kernel.NewDevice(p.board, cables); err != nil {
		return nil, err
	}
	c.Name, c.Ports, c.Planes, c.Device = o.Name, f.Ranks, planeConfigs(f), p.device
	return controller.Start(c)
}

// closingPanel is circuits that this process writes.
type closingPanel interface {
	kernel.Panel
	Close() error
}

// openPanel becomes the writer of the circuits: of this host's, or through agents of those of all hosts.
func openPanel(o *fabric.OCSD, f *fabric.Fabric) (closingPanel, error) {
	if len(f.Hosts) > 1 {
		board, err := agent.Dial(context.Background(), f, agent.TLS(o.TLS))
		if err != nil { // not as a panel that is not nil
			return nil, err
		}
		return board, nil
	}
	state, err := kernel.Load(kernel.Name(f))
	if err != nil {
		return nil, err
	}
	board, err := kernel.Open(state)
	if err != nil {
		return nil, err
	}
	return board, nil
}

// writerGone bounds how long a controller that takes over waits for the one before to release the planes.
const writerGone = 30 * time.Second

// takeOver opens the panel. A hanging controller stays its writer until it ends, or continues and notices that it was
// replaced; takeOver waits for that.
func (p *kernelPlane) takeOver(rule *controller.Config) (closingPanel, error) {
	told := false
	for deadline := time.Now().Add(writerGone); ; time.Sleep(20 * time.Millisecond) {
		panel, err := openPanel(p.s.o, p.s.f)
		if !errors.Is(err, kernel.ErrBusy) || rule.Recovered == nil || time.Now().After(deadline) {
			return panel, err
		}
		if err := rule.Leading(); err != nil {
			return nil, err
		}
		if !told {
			told = true
			p.s.log.Warn("waiting for the planes", "reason", err)
		}
	}
}

// injectFaults runs the configured script on every model.
func (p *kernelPlane) injectFaults() (err error) {
	file := p.s.o.Device.Faults
	if file == "" {
		return nil
	}
	read := func() ([]byte, error) { return files.Read(file, cli.MaxInput) }
	p.faults, err = startFaults(read, p.models, func(text string) { p.s.log.Warn("device.faults", "fault", text) })
	if err != nil {
		return fmt.Errorf("device.faults: %s: %w", file, err)
	}
	return nil
}

func (p *kernelPlane) serve(core *controller.Core) (func(), error) { return p.s.serveSocket(core) }

func (p *kernelPlane) close() error {
	var err error
	if p.device != nil {
		err = p.device.Close()
	}
	if p.faults != nil {
		p.faults.stop()
	}
	for _, m := range p.models {
		m.Close()
	}
	if p.board != nil {
		err = errors.Join(err, p.board.Close())
	}
	p.device, p.faults, p.models, p.board = nil, nil, nil, nil
	return err
}

// realPlane is planes on real switches.
type realPlane struct {
	s      *service
	prober *kernel.Prober // nil: nothing can send tokens
	device *switches.Device
	shown  atomic.Pointer[switches.Device] // device, for the page
}

// seen returns the health of the switches for the page; nil while another controller drives them.
func (p *realPlane) seen(context.Context) ([]web.SwitchHealth, error) {
	d := p.shown.Load()
	if d == nil {
		return nil, nil
	}
	drivers := make(map[string]string)
	for _, o := range p.s.f.OCS {
		drivers[o.Name] = o.Driver
	}
	var all []web.SwitchHealth
	for _, s := range d.Switches() {
		h := web.SwitchHealth{Name: s.Name, Driver: drivers[s.Name],
			Model: strings.TrimSpace(s.Info.Vendor + " " + s.Info.Model), Planes: s.Planes}
		if s.Err != nil {
			h.Error = s.Err.Error()
		}
		all = append(all, h)
	}
	return all, nil
}

func (p *realPlane) build(c controller.Config) (_ *controller.Core, err error) {
	if err := p.close(); err != nil {
		return nil, err
	}
	o, f := p.s.o, p.s.f
	planes := planeConfigs(f)
	tables := make([][]string, len(planes))
	for j := range planes {
		planes[j].Labels, planes[j].Spares = f.Planes[j].Ports, f.Planes[j].Spares
		tables[j] = planes[j].Labels
		if c.Recovered != nil {
			tables[j] = controller.PortTable(planes[j].Labels, c.Recovered[j].Moved)
		}
	}
	var prober switches.Prober
	if tokens, ok := kernel.ProberOf(f); ok {
		p.prober, prober = tokens, tokens
	}
	if p.device, err = switchDevice(f, tables, o.Switches, prober, c.Token, p.s.log); err != nil {
		return nil, errors.Join(err, p.close())
	}
	p.shown.Store(p.device)
	c.Name, c.Ports, c.Planes, c.Device = o.Name, f.Ranks, planes, p.device
	c.SettleTimeout, c.PowerDrop = p.device.SettleWithin(), o.Switches.PowerDrop
	return controller.Start(c)
}

func (p *realPlane) serve(core *controller.Core) (func(), error) { return p.s.serveSocket(core) }

func (p *realPlane) close() error {
	device, prober := p.device, p.prober
	p.device, p.prober = nil, nil
	p.shown.Store(nil)
	var err error
	if device != nil {
		err = device.Close()
	}
	if prober != nil {
		err = errors.Join(err, prober.Close())
	}
	return err
}
