package shim_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unsafe"

	"lightpath/collectives/datatype"
	"lightpath/internal/require"
	"lightpath/shim"
	"lightpath/shim/bootstrap"
	"lightpath/shim/calls"
	"lightpath/shim/control"
	"lightpath/shim/errdefs"
	"lightpath/shim/result"
	"lightpath/shim/settings"
	"lightpath/shim/shimtest"
)

func TestBadArguments(t *testing.T) {
	t.Setenv("LIGHTPATH_TRANSPORT", "inproc")
	w := shimtest.NewWorld(t, 2)
	c := w.Comms[0]
	mem := make([]float32, 64)
	p := unsafe.Pointer(&mem[0])
	at := func(i int) unsafe.Pointer { return unsafe.Pointer(&mem[i]) }
	good := calls.Call{Comm: c, Kind: calls.AllReduce, Type: datatype.Float32, Count: 8, Send: p, Recv: p}
	for name, k := range map[string]struct {
		edit func(*calls.Call)
		says string
	}{
		"no comm":             {func(k *calls.Call) { k.Comm = nil }, "comm is NULL"},
		"kind":                {func(k *calls.Call) { k.Kind = calls.EndOfKinds }, "no such call"},
		"type":                {func(k *calls.Call) { k.Type = datatype.NumTypes }, "datatype 12"},
		"op":                  {func(k *calls.Call) { k.Op = calls.OpPreMulSum + 1 }, "operator 6"},
		"operator of nothing": {func(k *calls.Call) { k.Op = calls.OpPreMulSum }, "scalar is NULL"},
		"root":                {func(k *calls.Call) { k.Kind, k.Peer = calls.Broadcast, 2 }, "root 2"},
		"negative root":       {func(k *calls.Call) { k.Kind, k.Peer = calls.Reduce, -1 }, "root -1"},
		"peer":                {func(k *calls.Call) { k.Kind, k.Peer = calls.Send, 7 }, "peer 7"},
		"negative count":      {func(k *calls.Call) { k.Count = ^uint64(0) }, "count -1"},
		"huge count":          {func(k *calls.Call) { k.Kind, k.Count = calls.AllGather, 1<<60 }, "too large"},
		"no such memory":      {func(k *calls.Call) { k.Kind, k.Count = calls.Broadcast, 1<<57 }, "too large"},
		"no send buffer":      {func(k *calls.Call) { k.Send = nil }, "sendbuff is NULL"},
		"no receive buffer":   {func(k *calls.Call) { k.Recv = nil }, "recvbuff is NULL"},
		"partial overlap":     {func(k *calls.Call) { k.Recv = at(3) }, "overlap"},
		"allgather at the wrong block": {func(k *calls.Call) {
			k.Kind, k.Send = calls.AllGather, at(8)
		}, "overlap"},
		"reducescatter at the wrong block": {func(k *calls.Call) {
			k.Kind, k.Recv = calls.ReduceScatter, at(8)
		}, "overlap"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := good
			k.edit(&bad)
			shimtest.WantError(t, calls.Check(&bad), errdefs.ErrInvalidArgument, k.says)
			shimtest.WantError(t, shim.Run([]calls.Call{good, bad}), errdefs.ErrInvalidArgument, k.says)
			if result.Of(calls.Check(&bad)) != result.InvalidArgument {
				t.Errorf("result %d", result.Of(calls.Check(&bad)))
			}
		})
	}
	for name, edit := range map[string]func(*calls.Call){
		"nothing to send":          func(k *calls.Call) { k.Count, k.Send, k.Recv = 0, nil, nil },
		"not root, no send buffer": func(k *calls.Call) { k.Kind, k.Peer, k.Send = calls.Broadcast, 1, nil },
		"not root, no receive":     func(k *calls.Call) { k.Kind, k.Peer, k.Recv = calls.Reduce, 1, nil },
		"misaligned":               func(k *calls.Call) { k.Send = unsafe.Add(p, 1); k.Recv = k.Send },
		"neighbours":               func(k *calls.Call) { k.Recv = at(8) },
		"gather in place":          func(k *calls.Call) { k.Kind = calls.Gather },
	} {
		ok := good
		edit(&ok)
		if err := calls.Check(&ok); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// None of it has harmed the communicator.
	w.Must(func(c *shim.Comm) error { return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 10))}) })
}

func TestBadInit(t *testing.T) {
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	damaged := id
	damaged[50]++
	for name, k := range map[string]struct {
		args shim.InitArgs
		says string
	}{
		"no ranks":   {shim.InitArgs{ID: id, Ranks: 0}, "nranks 0"},
		"many ranks": {shim.InitArgs{ID: id, Ranks: 1 << 20}, "nranks 1048576"},
		"rank":       {shim.InitArgs{ID: id, Ranks: 2, Rank: 2}, "rank 2"},
		"negative":   {shim.InitArgs{ID: id, Ranks: 2, Rank: -1}, "rank -1"},
		"foreign id": {shim.InitArgs{Ranks: 1}, "commId"},
		"damaged id": {shim.InitArgs{ID: damaged, Ranks: 1}, "commId"},
	} {
		_, err := shim.Init([]shim.InitArgs{k.args})
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		shimtest.WantError(t, err, errdefs.ErrInvalidArgument, k.says)
	}
}

// TestRendezvousRefusals: whatever is wrong with one rank, everyone learns it.
func TestRendezvousRefusals(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]struct {
		ranks []shim.InitArgs // Ranks and Rank only
		is    error
		says  []string
	}{
		"sizes differ": {[]shim.InitArgs{{Ranks: 2, Rank: 0}, {Ranks: 3, Rank: 1}, {Ranks: 3, Rank: 2}},
			errdefs.ErrInvalidUsage, []string{"says the communicator has", "2", "3"}},
		"twice a rank": {[]shim.InitArgs{{Ranks: 3, Rank: 0}, {Ranks: 3, Rank: 1}, {Ranks: 3, Rank: 1}},
			errdefs.ErrInvalidUsage, []string{"rank 1"}},
		"never arrives": {[]shim.InitArgs{{Ranks: 4, Rank: 0}, {Ranks: 4, Rank: 3}}, errdefs.ErrTimeout,
			[]string{"ranks 1-2 never arrived"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timeout := "50s"
			if errors.Is(k.is, errdefs.ErrTimeout) {
				timeout = "3s" // the ranks that come are faster
			}
			cfg := shimtest.Settings(t, "LIGHTPATH_TIMEOUT", timeout)
			id, err := bootstrap.NewID(cfg)
			require.NoError(t, err)
			for i := range k.ranks {
				k.ranks[i].ID = id
			}
			for _, err := range shimtest.InitAll(t, k.ranks, cfg) {
				if name == "sizes differ" && err != nil && strings.Contains(err.Error(), "not one of") {
					continue // a rank beyond the size that was said first
				}
				shimtest.WantError(t, err, k.is, k.says...)
			}
		})
	}
}

// TestSettingsDiffer: ranks that would choose differently refuse each other.
func TestSettingsDiffer(t *testing.T) {
	t.Parallel()
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	errs := shimtest.Concurrently(t, 2, func(r int) error {
		cfg, err := settings.Of("LIGHTPATH_TIMEOUT", "40s", "LIGHTPATH_PLANES", fmt.Sprint(r+1))
		if err != nil {
			return err
		}
		_, err = shimtest.InitOne(shim.InitArgs{ID: id, Ranks: 2, Rank: r}, cfg)
		return err
	})
	shimtest.WantErrors(t, errs, errdefs.ErrInvalidUsage, "LIGHTPATH_PLANES=1", "LIGHTPATH_PLANES=2")
}

// TestStrangers checks that connections without the secret change nothing.
func TestStrangers(t *testing.T) {
	t.Parallel()
	id, err := shim.NewUniqueID()
	require.NoError(t, err)
	addr, _, err := bootstrap.ParseID(&id)
	require.NoError(t, err)
	for _, say := range []string{"", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", strings.Repeat("\x00", 4096), control.Magic +
		strings.Repeat("x", 48)} {
		conn, err := net.Dial("tcp", addr.String())
		require.NoError(t, err)
		defer conn.Close()
		if _, err := conn.Write([]byte(say)); err != nil {
			t.Fatal(err)
		}
	}
	impostor(t, addr)
	if _, err := control.Dial(t.Context(), addr, control.Secret{1, 2, 3}, time.Now().Add(2*time.Second),
		true); err == nil {
		t.Error("a wrong secret was let in")
	}
	for r, err := range shimtest.InitAll(t, []shim.InitArgs{{ID: id, Ranks: 2, Rank: 0}, {ID: id, Ranks: 2, Rank: 1}},
		shimtest.Settings(t)) {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// impostor runs the handshake with a wrong secret and claims to be rank 1. The listener must close the connection
// without proving anything itself.
func impostor(t *testing.T, addr netip.AddrPort) {
	t.Helper()
	conn, err := net.Dial("tcp", addr.String())
	require.NoError(t, err)
	defer conn.Close()
	var challenge [24]byte
	if _, err := io.ReadFull(conn, challenge[:]); err != nil {
		t.Fatal(err)
	}
	nonce := make([]byte, 16)
	answer := append([]byte(control.Magic), nonce...)
	answer = append(answer, control.Proof(control.Secret{9}, "join", challenge[8:], nonce)...)
	answer = control.Append(answer, &control.Message{Kind: control.MsgHello, From: 1,
		Body: []byte(`{"rank":1,"ranks":2}`)})
	if _, err := conn.Write(answer); err != nil {
		t.Fatal(err)
	}
	if n, _ := conn.Read(make([]byte, 64)); n > 0 {
		t.Errorf("an impostor got %d bytes of answer", n)
	}
}

// TestMismatch: different calls under one number are an error that names both, not a hang.
func TestMismatch(t *testing.T) {
	type group = [2]func(c *shim.Comm, mem []float32) calls.Call
	reduce := func(kind calls.Kind, count uint64, typ datatype.Type, op datatype.Op, root int32) func(*shim.Comm,
		[]float32) calls.Call {
		return func(c *shim.Comm, mem []float32) calls.Call {
			return calls.Call{Comm: c, Kind: kind, Type: typ, Op: op, Peer: root, Count: count, Send: unsafe.Pointer(&mem[0]),
				Recv: unsafe.Pointer(&mem[1024])}
		}
	}
	for name, k := range map[string]group{
		"count": {reduce(calls.AllReduce, 100, datatype.Float32, 0, 0), reduce(calls.AllReduce, 200, datatype.Float32, 0, 0)},
		"type":  {reduce(calls.AllReduce, 100, datatype.Float32, 0, 0), reduce(calls.AllReduce, 100, datatype.Int32, 0, 0)},
		"op":    {reduce(calls.AllReduce, 100, datatype.Float32, 0, 0), reduce(calls.AllReduce, 100, datatype.Float32, 2, 0)},
		"root":  {reduce(calls.Broadcast, 100, datatype.Float32, 0, 0), reduce(calls.Broadcast, 100, datatype.Float32, 0, 1)},
		"call":  {reduce(calls.AllReduce, 100, datatype.Float32, 0, 0), reduce(calls.AllGather, 100, datatype.Float32, 0, 0)},
		"idle":  {reduce(calls.AllReduce, 100, datatype.Float32, 0, 0), reduce(calls.AllReduce, 0, datatype.Float32, 0, 0)},
		"empty": {reduce(calls.AllReduce, 0, datatype.Float32, 0, 0), reduce(calls.AllReduce, 100, datatype.Float32, 0, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := shimtest.NewWorld(t, 3)
			errs := w.Each(func(c *shim.Comm) error {
				mem := make([]float32, 4096)
				which := 0
				if c.Rank == 1 {
					which = 1
				}
				// An operation that one rank does not even wait in fails at its next.
				if err := shim.Run([]calls.Call{k[which](c, mem)}); err != nil {
					return err
				}
				if name == "idle" {
					// Rank 1 has called, and has nothing to wait for.
					shimtest.Eventually(func() bool { return c.AsyncError() != nil })
					return c.AsyncError()
				}
				return shim.Run([]calls.Call{reduce(calls.AllReduce, 5, datatype.Float32, 0, 0)(c, mem)})
			})
			for r, err := range errs {
				shimtest.WantError(t, err, errdefs.ErrMismatch, "called "+describeCall(k[0](w.Comms[0], make([]float32, 4096))),
					"rank 1 called "+describeCall(k[1](w.Comms[0], make([]float32, 4096))))
				shimtest.Eventually(func() bool { return w.Comms[r].AsyncError() != nil })
				if async := w.Comms[r].AsyncError(); !errors.Is(async, errdefs.ErrMismatch) {
					t.Errorf("rank %d: asynchronous error %v", r, async)
				}
			}
		})
	}
}

func describeCall(c calls.Call) string { return (&c).String() }

// TestMissingRank checks that the wait for a rank that never calls ends, with an error that names the rank.
func TestMissingRank(t *testing.T) {
	t.Parallel()
	w := shimtest.NewWorld(t, 3)
	w.SetTimeout(time.Second) // the others report four times that they wait
	errs := w.Each(func(c *shim.Comm) error {
		if c.Rank == 2 {
			return nil
		}
		return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 1000))})
	})
	for r, err := range errs[:2] {
		shimtest.WantError(t, err, errdefs.ErrTimeout, "rank 2 did not arrive", "AllReduce")
		if result.Of(err) != result.Timeout {
			t.Errorf("rank %d: result %d", r, result.Of(err))
		}
	}
	shimtest.Eventually(func() bool { return w.Comms[2].AsyncError() != nil })
	shimtest.WantError(t, w.Comms[2].AsyncError(), errdefs.ErrTimeout)
}

func TestAbortUnblocks(t *testing.T) {
	shimtest.OnTransports(t, []string{"inproc", "shm", "tcp"}, func(t *testing.T) {
		w := shimtest.NewWorld(t, 3)
		errs := w.Each(func(c *shim.Comm) error {
			if c.Rank == 2 {
				time.Sleep(50 * time.Millisecond)
				return c.Abort()
			}
			return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 1000))})
		})
		shimtest.WantErrors(t, errs[:2], errdefs.ErrAborted, "rank 2")
	})
	t.Run("own", func(t *testing.T) {
		w := shimtest.NewWorld(t, 2)
		errs := shimtest.Concurrently(t, 2, func(i int) error {
			if i == 1 {
				time.Sleep(50 * time.Millisecond)
				return w.Comms[0].Abort()
			}
			return shim.Run([]calls.Call{shimtest.AllReduce(w.Comms[0], make([]float32, 1000))})
		})
		shimtest.WantError(t, errs[0], errdefs.ErrAborted, "rank 0")
		if errs[1] != nil {
			t.Error(errs[1])
		}
	})
}

func TestUseAfterDestroy(t *testing.T) {
	w := shimtest.NewWorld(t, 1)
	c := w.Comms[0]
	require.NoError(t, c.Finalize())
	call := shimtest.AllReduce(c, make([]float32, 1))
	shimtest.WantError(t, shim.Run([]calls.Call{call}), errdefs.ErrDestroyed)
	require.NoError(t, c.Destroy())
	for name, err := range map[string]error{
		"run": shim.Run([]calls.Call{call}), "check": calls.Check(&call), "finalize": c.Finalize(), "destroy": c.Destroy(),
		"abort": c.Abort(),
	} {
		if !errors.Is(err, errdefs.ErrDestroyed) || result.Of(err) != result.InvalidArgument {
			t.Errorf("%s: %v, result %d", name, err, result.Of(err))
		}
	}
}
