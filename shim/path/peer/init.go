package peer

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"lightpath/collectives/sharedmem/memfile"
	"lightpath/shim/bootstrap"
	"lightpath/shim/comm"
	"lightpath/shim/control"
	"lightpath/shim/device"
	"lightpath/shim/dispatch"
	"lightpath/shim/log"
	"lightpath/shim/memory"
	"lightpath/shim/recorder"
	"lightpath/shim/settings"
	"lightpath/shim/stream"
)

// whyNot returns why ranks cannot try to exchange data through device memory, "" if they can. It is a pure function of
// what all ranks share.
func whyNot(table []bootstrap.Hello, cfg *settings.Config) string {
	first := &table[0]
	switch {
	case cfg.Transport != "auto":
		return "LIGHTPATH_TRANSPORT=" + cfg.Transport + " is asked for"
	case len(cfg.Algorithms) > 0:
		return "LIGHTPATH_ALGORITHM is set"
	case cfg.Other.Interpose:
		return "LIGHTPATH_FALLBACK=interpose leaves device memory to the other library"
	case first.Fabric != "":
		return "the fabric has circuits"
	case len(table) > maxRanks:
		return fmt.Sprintf("%d ranks are more than %d", len(table), maxRanks)
	}
	for i := range table {
		h := &table[i]
		switch {
		case h.NoDirect != "":
			return h.Where() + ": " + h.NoDirect
		case h.Identity == "":
			return h.Where() + ": " + h.NoDevice
		case h.Host != first.Host || h.PIDs != first.PIDs:
			return fmt.Sprintf("%s and %s are not on one host", first.Where(), h.Where())
		}
	}
	return ""
}

// Attach makes all ranks exchange data through device memory, or none. It returns why they do not. If it returns an
// error, the communicator has failed.
func Attach(c *comm.Core) (why string, err error) {
	if why := whyNot(c.Table, c.Cfg); why != "" {
		return why, nil
	}
	n, d := c.Ranks, stream.Of(c)
	x := &Path{
		c: c, dev: d, driver: device.Active().(device.Peers), n: n, me: c.Rank,
		exchange: exchange{n: n, me: c.Rank, of: make([]unsafe.Pointer, n)},
		lanes:    make([]lane, 2*n), slots: slots{round: numSlots},
		counts: counts{sent: make([]uint64, n), wanted: make([]uint64, n)},
		opened: opened{regions: make([]openRegion, n*maxRegions)}, news: newsSlot.Of(c),
		entry: dispatch.Entry{Algorithm: algorithm},
	}
	x.queue.c, x.queue.me, x.queue.driver = c, c.Rank, x.driver
	x.queue.batch = make([]device.Word, 0, device.MaxWords)
	x.queue.divideRoom(c)
	for i := range x.lanes {
		x.lanes[i].peer, x.lanes[i].send = i%n, i < n
	}
	x.joint = true
	for r := range c.Table {
		x.joint = x.joint && c.Table[r].Identity == c.Table[0].Identity
	}
	x.published.unasked.begin(c.Cfg)
	x.watcher.kick, x.watcher.stop, x.watcher.over = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	if why, err = x.meet(); err != nil || why != "" {
		x.free(true)
		return why, err
	}
	slot.Set(c, x)
	d.Launcher = x
	if x.page != nil {
		d.Exchange = uint64(x.exchange.allocated)
		c.Log.Info(log.Init, "%d bytes of device memory for exchange, of which %d are used",
			x.exchange.allocated, x.exchange.used)
		recorder.Of(c).OnDevice(&x.page.rank(x.me).ended)
	}
	memory.AddUser(x)
	x.setInUse(x.n > 1)
	go x.watch()
	return "", nil
}

// meet sets up what the ranks share, in two steps. All ranks must complete the first step before the second.
func (x *Path) meet() (why string, err error) {
	if size := x.c.Cfg.Device.Exchange; x.n > 1 && size != 0 {
		if err := x.exchange.divide(size); err != nil { // all ranks fail
			return "", err
		}
	}
	where, failed := x.leaderPage()
	if x.n > 1 && x.me == 0 {
		body, _ := json.Marshal(where) // a plain struct: cannot fail
		x.c.Star.Broadcast(&control.Message{Kind: control.MsgExchange, Body: body}, -1)
	} else if x.n > 1 {
		m, err := x.c.Await(control.MsgExchange, 0)
		if err != nil {
			return "", err
		}
		if err := json.Unmarshal(m.Body, &where); err != nil {
			return "", fmt.Errorf("%w: %w", control.ErrMessage, err)
		}
	}
	if failed == nil {
		failed = x.offer(where)
	}
	why, err = x.c.Accord(1, failed)
	if x.page != nil {
		x.page.shared.Free()
		x.page.shared = nil
	}
	if why != "" || err != nil {
		return why, err
	}
	return x.c.Accord(2, x.ready())
}

// ready divides the exchange memory, of which all ranks use as much as the one that has least. It clears this rank's
// own words there, and gives its device access to the memory of all peers.
func (x *Path) ready() error {
	if x.n == 1 {
		return nil
	}
	if err := x.driver.EnterContext(x.dev.Context); err != nil {
		return err
	}
	defer x.driver.Leave()
	size := x.exchange.allocated
	for r := range x.n {
		size = min(size, x.page.rank(r).bytes)
	}
	if err := x.exchange.divide(size); err != nil {
		return err
	}
	x.queue.blocks = x.exchange.counter(x.me, blockCounters)
	if err := x.sayNothing(); err != nil {
		return err
	}
	return x.reachAll()
}

// leaderPage makes the page if this rank is the leader.
func (x *Path) leaderPage() (memfile.Place, error) {
	if x.n == 1 || x.me != 0 {
		return memfile.Place{}, nil
	}
	shared, err := memory.NewPage("nccl-exchange", pageSize(x.n))
	if err != nil {
		return memfile.Place{FD: -1}, err
	}
	x.usePage(&tokenPage{n: x.n, mem: shared.Mem, shared: shared})
	x.page.begin()
	return memfile.Find(shared.FD, 0), nil
}

func (x *Path) usePage(p *tokenPage) { x.page, x.queue.page = p, p }

// offer maps the page, and publishes in it how peers reach the exchange memory of this rank.
func (x *Path) offer(w memfile.Place) error {
	if err := x.driver.EnterContext(x.dev.Context); err != nil {
		return err
	}
	defer x.driver.Leave()
	var err error
	if err = x.dev.Pool.Prepare(); err == nil {
		x.own, err = x.dev.Pool.Take()
	}
	if err != nil {
		return err
	}
	if x.n == 1 {
		return x.prepareAll()
	}
	size := pageSize(x.n)
	mem, err := memfile.Map(w, int64(size), true)
	if err != nil {
		return fmt.Errorf("the page of tokens cannot be mapped: %w", err)
	}
	at, err := x.driver.Register(mem)
	if err != nil {
		memfile.Unmap(mem)
		return err
	}
	if x.page == nil {
		x.usePage(&tokenPage{n: x.n})
	}
	x.page.mem, x.page.at = mem, at
	if err = x.exchange.reserve(x.driver, x.dev.Pool, x.c.Device, x.c.Cfg.Device.Exchange); err != nil {
		return err
	}
	own, room := x.page.rank(x.me), x.exchange.of[x.me]
	own.bytes, own.pointer = x.exchange.allocated, uint64(uintptr(room))
	if own.handle, err = x.driver.Export(room); err != nil {
		return err
	}
	return x.prepareAll()
}

// prepareAll makes the kernels and events of all launches. Later, a driver may wait for the work of the device before
// it makes one, and that work may wait for this rank.
func (x *Path) prepareAll() error {
	return errors.Join(x.driver.LoadKernels(), x.dev.Prepare(), x.sides.Prepare(x.c))
}

// sayNothing clears the words and counters in the exchange memory of this rank, so that it lends nothing. It waits
// until the stream has cleared them.
func (x *Path) sayNothing() error {
	e, err := x.driver.NewEvent()
	if err != nil {
		return err
	}
	defer func() { _ = x.driver.FreeEvent(e) }()
	x.queue.onto(x.own, 0)
	for at := 0; at < saidBytes+countersBytes; at += tokenSize {
		x.queue.store(x.exchange.counter(x.me, at), 0, false)
	}
	if err := errors.Join(x.queue.flush(), x.driver.Record(e, x.own)); err != nil {
		return err
	}
	for reached := false; !reached && err == nil; {
		if reached, err = x.driver.Reached(e); !reached {
			time.Sleep(20 * time.Microsecond)
		}
		if x.c.Failed() {
			return x.c.AsyncError()
		}
	}
	return err
}

// reachAll gives this rank's device access to the exchange memory of all peers.
func (x *Path) reachAll() error {
	for r := range x.n {
		if r == x.me {
			continue
		}
		if err := x.reach(r); err != nil {
			return fmt.Errorf("memory of %s: %w", x.c.Table[r].Where(), err)
		}
	}
	return nil
}

func (x *Path) reach(r int) (err error) {
	theirs := x.page.rank(r)
	if !x.far(r) {
		x.exchange.of[r] = *(*unsafe.Pointer)(unsafe.Pointer(&theirs.pointer))
		return x.driver.Reach(x.exchange.of[r])
	}
	handle := theirs.handle
	if x.exchange.of[r], err = x.driver.Import(&handle); err == nil {
		x.exchange.imported |= one(r)
	}
	return err
}

// free releases everything, when no stream uses it any more. If read is set, no peer reads the exchange memory any
// more, and it is kept for the next communicator. The driver frees later what it may free only on an idle device.
func (x *Path) free(read bool) {
	if x.page != nil {
		recorder.Of(x.c).OnDevice(nil)
		x.page.shared.Free()
	}
	x.sides.Free(x.dev.Pool)
	x.dev.Pool.Give(x.own)
	x.exchange.free(x.driver, x.dev.Pool, read)
	if x.page != nil && x.page.at != 0 {
		x.reading.Lock()
		defer x.reading.Unlock()
		mem := x.page.mem
		x.page.mem = nil
		x.dev.Pool.Later(func() {
			_ = x.driver.Unregister(mem)
			memfile.Unmap(mem)
		})
	}
}
