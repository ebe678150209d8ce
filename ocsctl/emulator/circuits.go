package emulator

import (
	"fmt"

	"lightpath/internal/shmring"
	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/local"
	"lightpath/plans/circuit"
)

// circuits is the data path of a controller: the rings of every port and the circuits between
// them. All methods except NewPort and Info run on the core's goroutine, which passes the time. So it needs no locks,
// and tests control every nanosecond.
type circuits struct {
	geo    geometry
	planes []*medium
	ports  []*port   // by port, nil where no rank is attached
	log    *frameLog // nil: none
}

// medium carries one plane's frames.
type medium struct {
	index     int
	nsPerByte float64
	epochs    []uint32 // by port, read-only
	m         circuit.Permutation
	tx        []transmitter // by port
	stats     PlaneStats
}

// port is a rank's end of every plane.
type port struct {
	view   *portView
	bell   *shmring.Doorbell
	broken func(error)
}

// PlaneStats holds the counters of a plane since the start of the switch.
type PlaneStats struct {
	Frames, Bytes uint64              // delivered; data bytes without labels
	Lost          [numVerdicts]uint64 // frames, by verdict
	Stalled       int64               // ns, sum of the times that full receive rings blocked circuits
	Late          int64               // ns, the largest delay of a delivery after its time
}

var (
	_ controller.DataPath = (*circuits)(nil)
	_ local.Rings         = (*circuits)(nil)
)

func newCircuits(cfg *Config, log *frameLog) *circuits {
	c := &circuits{
		geo:   geometry{planes: len(cfg.Planes), slots: cfg.Slots, mtu: cfg.MTU},
		ports: make([]*port, cfg.Ports), log: log,
	}
	for i, pc := range cfg.Planes {
		pl := &medium{index: i, nsPerByte: 8e9 / pc.BandwidthBitsPerSec, m: circuit.AllDark(cfg.Ports),
			epochs: make([]uint32, cfg.Ports), tx: make([]transmitter, cfg.Ports)}
		for p := range pl.tx {
			pl.tx[p] = transmitter{port: p, to: circuit.Dark, idle: true}
		}
		c.planes = append(c.planes, pl)
	}
	return c
}

// Info implements local.Rings.
func (c *circuits) Info() local.RingsInfo {
	return local.RingsInfo{Slots: c.geo.slots, MTU: c.geo.mtu, Bytes: c.geo.size()}
}

// NewPort implements local.Rings.
func (c *circuits) NewPort(number int, bell *shmring.Doorbell, broken func(error)) (*shmring.Memory, any, error) {
	mem, err := shmring.NewMemory(fmt.Sprintf("lightpath-rings-%d", number), c.geo.size())
	if err != nil {
		return nil, nil, err
	}
	c.geo.format(mem.Bytes)
	view, err := c.geo.view(mem.Bytes)
	if err != nil {
		mem.Close()
		return nil, nil, err
	}
	return mem, &port{view, bell, broken}, nil
}

// Step implements controller.DataPath.
func (c *circuits) Step(now int64) (next int64) {
	next = never
	for _, pl := range c.planes {
		for i := range pl.tx {
			if t := &pl.tx[i]; t.tx != nil {
				next = min(next, c.service(pl, t, now))
			}
		}
	}
	return next
}

// Attach implements controller.DataPath; data is a result of NewPort.
func (c *circuits) Attach(number int, data any, now int64) {
	p, ok := data.(*port)
	if !ok {
		return // a rank without rings sends nothing
	}
	c.ports[number] = p
	for _, pl := range c.planes {
		t := &pl.tx[number]
		t.tx, t.asked, t.busy, t.idle, t.free, t.credit = p.view.tx[pl.index], p.view.idle[pl.index], false, true, now, 0
	}
}

// Detach implements controller.DataPath.
func (c *circuits) Detach(number int, now int64) {
	if c.ports[number] == nil {
		return
	}
	for _, pl := range c.planes {
		t := &pl.tx[number]
		if t.busy {
			c.lose(pl, t, LostVacant, now)
		}
		t.tx = nil
	}
	c.ports[number] = nil
}

// Darken implements controller.DataPath.
func (c *circuits) Darken(plane int, ports []int, now int64) {
	pl := c.planes[plane]
	for _, p := range ports {
		t := &pl.tx[p]
		t.dark = true
		if t.busy {
			c.lose(pl, t, LostDark, now)
		}
	}
}

// Install implements controller.DataPath. On circuits that change, it rejects frames of epochs before the port's in
// made.
func (c *circuits) Install(plane int, m circuit.Permutation, made []uint32, now int64) {
	pl := c.planes[plane]
	for p := range pl.tx {
		t := &pl.tx[p]
		if t.dark || t.to != m[p] {
			t.made, t.idle, t.free = made[p], true, max(t.free, now)
			if t.busy {
				c.lose(pl, t, LostDark, now)
			}
		}
		t.to, t.dark = m[p], false
	}
	pl.m = m
}

// Advance implements controller.DataPath.
func (c *circuits) Advance(plane int, epoch uint32, epochs []uint32, began, now int64) {
	pl := c.planes[plane]
	pl.epochs = epochs
	if began == 0 {
		return
	}
	if c.log != nil {
		c.log.change(&SwitchRecord{Start: began, End: now, Plane: uint16(plane), Epoch: epoch, Map: pl.m})
	}
}

// broken disconnects a port with corrupt rings, and ends its rank's session.
func (c *circuits) broken(number int, err error) {
	for _, pl := range c.planes {
		t := &pl.tx[number]
		t.tx, t.busy = nil, false
	}
	c.ports[number].broken(fmt.Errorf("port %d: %w", number, err))
}
