package verbs

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/rdma"
	"lightpath/collectives/transport/transporttest"
	"lightpath/collectives/wire"
	"lightpath/internal/require"
)

// devicesEnv names the two ends of each plane: "rxea0,rxeb0 rxea1,rxeb1". vm/run.sh sets it.
const devicesEnv = "LIGHTPATH_TEST_RDMA"

// ends returns the devices of the planes, by plane and end. It skips the test if there are none.
func ends(t testing.TB) [][2]rdma.Device {
	t.Helper()
	planes := strings.Fields(os.Getenv(devicesEnv))
	if len(planes) == 0 {
		t.Skipf("%s names no RDMA devices: make test-rdma runs this in a virtual machine that has some", devicesEnv)
	}
	var devices [][2]rdma.Device
	for _, p := range planes {
		var pair [2]rdma.Device
		a, b, _ := strings.Cut(p, ",")
		for i, name := range []string{a, b} {
			d, err := Library{}.Open(name)
			require.NoError(t, err)
			d = &once{Device: d}
			t.Cleanup(func() { transporttest.Close(t, d) })
			pair[i] = d
		}
		devices = append(devices, pair)
	}
	return devices
}

// once is a device that a test may close early.
type once struct {
	rdma.Device
	closed bool
}

func (o *once) Close() error {
	if o.closed {
		return nil
	}
	o.closed = true
	return o.Device.Close()
}

// connect makes a communicator: even ranks are at one end of each plane, odd ones at the other.
func connect(t testing.TB, devices [][2]rdma.Device, ranks, planes int, o rdma.ListenOptions) []transport.Endpoint {
	t.Helper()
	o.Retries = cmp.Or(o.Retries, 3)
	o.Timeout = cmp.Or(o.Timeout, patient)
	listeners := make([]*rdma.Listener, ranks)
	addrs := make([]rdma.Addrs, ranks)
	for r := range listeners {
		o.Rank, o.Ranks, o.Planes = r, ranks, nil
		for p := range planes {
			o.Planes = append(o.Planes, rdma.PlaneOptions{Device: devices[p%len(devices)][r%2], Port: 1, GIDIndex: -1})
		}
		l, err := rdma.Listen(o)
		require.NoError(t, err)
		t.Cleanup(func() { transporttest.Close(t, l) })
		listeners[r], addrs[r] = l, l.Addrs()
	}
	endpoints := make([]transport.Endpoint, ranks)
	for r, l := range listeners {
		e, err := rdma.Connect(l, rdma.Options{Addrs: addrs})
		require.NoError(t, err)
		t.Cleanup(func() { transporttest.Close(t, e) })
		endpoints[r] = e
	}
	return endpoints
}

// An emulated machine may stop for a while, so timeouts are long unless a test waits for one.
const (
	patient   = 20 // 4.3 s
	impatient = 16 // 0.3 s
)

// unacknowledged selects queue pairs without acknowledgements.
var unacknowledged = rdma.ListenOptions{Control: "127.0.0.1:0", Unacknowledged: true}

// TestConformance runs the tests of all transports over real queue pairs.
func TestConformance(t *testing.T) {
	devices := ends(t)
	for _, c := range []struct {
		name string
		o    rdma.ListenOptions
	}{
		{"RC", rdma.ListenOptions{}},
		{"RC-aside", rdma.ListenOptions{Control: "127.0.0.1:0"}},
		{"UC", unacknowledged},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "RC-aside" && os.Getenv("LIGHTPATH_TEST_LONG") == "" {
				t.Skip("long, and each half of it is in the others: LIGHTPATH_TEST_LONG is not set")
			}
			transporttest.Run(t, transporttest.Config{
				PeerLoss: true,
				Open: func(t testing.TB, ranks, planes int) []transport.Endpoint {
					return connect(t, devices, ranks, planes, c.o)
				},
			})
		})
	}
}

// TestWithoutDevices checks that the error names the missing library or device in one line.
func TestWithoutDevices(t *testing.T) {
	if os.Getenv(devicesEnv) != "" {
		t.Skip("there are devices here")
	}
	_, err := Library{}.Open("no-such-device")
	switch {
	case err == nil:
		t.Fatal("a device that is not there is open")
	case errors.Is(err, ErrLibrary), errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENOSYS):
		t.Log(err)
	default:
		t.Fatal(err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("%q is more than one line", err)
	}
}

// TestPorts checks the properties of devices and ports.
func TestPorts(t *testing.T) {
	for _, pair := range ends(t) {
		for _, d := range pair {
			info, err := d.Port(1)
			if err != nil || !info.Active || !info.Ethernet || info.MTU < 1024 || !info.Soft || info.GIDs == 0 {
				t.Errorf("%+v, %v", info, err)
			}
			i, err := rdma.ChooseGID(d, 1)
			require.NoError(t, err)
			if g, err := d.GID(1, i); err != nil || g.Type != rdma.RoCEv2 || g.GID[10] != 0xff {
				t.Errorf("GID %d: %+v, %v", i, g, err)
			}
			if _, err := d.Port(9); err == nil {
				t.Error("there is no port 9")
			}
		}
	}
	names, err := Library{}.Names()
	if err != nil || len(names) < 2 {
		t.Errorf("%v, %v", names, err)
	}
}

// sh runs a command that breaks or repairs the network.
func sh(t *testing.T, command string) {
	t.Helper()
	cmd := exec.Command("bash", "-c", command) // not busybox, which has its own ip and tc
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
}

// deliver sends a word from rank 0 to rank 1 on plane 0 and returns the first error.
func deliver(t *testing.T, e []transport.Endpoint) error {
	t.Helper()
	from, to := e[0].Planes()[0], e[1].Planes()[0]
	sent := 0
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(time.Millisecond) {
		if sent == 0 {
			n, err := from.TrySend(&wire.Header{Dst: 1, Epoch: 5}, make([]byte, 8))
			if err != nil {
				return err
			}
			sent = n
		}
		if _, err := from.Drained(); err != nil {
			return err
		}
		h, _, err := to.Peek(0)
		if err != nil {
			return err
		}
		if h != nil {
			to.Release(0)
			return nil
		}
	}
	t.Fatal("nothing arrives and nothing fails in a minute")
	return nil
}

// TestLosses loses one packet in a hundred. All frames arrive once, in order and complete.
func TestLosses(t *testing.T) {
	devices := ends(t)
	if os.Getenv("LIGHTPATH_TEST_LONG") == "" {
		t.Skip("long: LIGHTPATH_TEST_LONG is not set")
	}
	for _, end := range []string{"pa0", "pb0"} {
		sh(t, "tc qdisc add dev "+end+" root netem loss 1%")
		defer sh(t, "tc qdisc del dev "+end+" root")
	}
	e := connect(t, devices, 2, 1, rdma.ListenOptions{Service: rdma.Service{Timeout: 14, Retries: 7}}) // 67 ms
	defer transporttest.Close(t, e[0], e[1])
	from, to := e[0].Planes()[0], e[1].Planes()[0]
	chunk := make([]byte, 64<<10)
	for i := range chunk {
		chunk[i] = byte(i * 7)
	}
	const total = 16 << 20
	for start, sent, got := time.Now(), 0, 0; got < total; {
		if time.Since(start) > 2*time.Minute {
			t.Fatalf("%d bytes sent, %d received in two minutes", sent, got)
		}
		n, err := 0, error(nil)
		if sent < total {
			n, err = from.TrySend(&wire.Header{Dst: 1, Offset: uint64(sent)}, chunk[sent%len(chunk):])
		}
		if _, derr := from.Drained(); err == nil {
			err = derr
		}
		if err != nil {
			t.Fatalf("after %d bytes: %v", sent, err)
		}
		sent += n
		h, data, err := to.Peek(0)
		switch {
		case err != nil:
			t.Fatalf("after %d bytes: %v", got, err)
		case h == nil && n == 0:
			time.Sleep(time.Millisecond)
		case h != nil:
			at := got % len(chunk)
			if h.Offset != uint64(got) || at+len(data) > len(chunk) || !bytes.Equal(data, chunk[at:][:len(data)]) {
				t.Fatalf("frame of %d bytes at %d where %d was due", len(data), h.Offset, got)
			}
			got += len(data)
			to.Release(0)
		}
	}
}

// TestBrokenPlane uses a plane that drops all packets, and one whose link is down. The communicator fails with an
// error that names ranks, plane and status, and the other plane continues. After a repair, new communicators work.
func TestBrokenPlane(t *testing.T) {
	devices := ends(t)
	if len(devices) < 2 {
		t.Skip("one plane only")
	}
	for _, c := range []struct{ name, breaks, mends string }{
		{"blackhole", "tc qdisc add dev pa0 root netem loss 100%", "tc qdisc del dev pa0 root"},
		{"link down", "ip link set pb0 down", "ip link set pb0 up; " + restore},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := connect(t, devices, 2, 2, rdma.ListenOptions{Service: rdma.Service{Timeout: impatient}})
			require.NoError(t, deliver(t, e))
			sh(t, c.breaks)
			mended := false
			defer func() {
				if !mended {
					sh(t, c.mends)
				}
			}()
			err := deliver(t, e)
			t.Log(err)
			var qe *rdma.QPError
			if !errors.As(err, &qe) || !errors.Is(err, transport.ErrPeerLost) || qe.Status != rdma.RetryExc || qe.Plane != 0 ||
				qe.Peer != 1 {
				t.Errorf("%v", err)
			}
			word := []byte("12345678")
			if n, err := e[0].Planes()[1].TrySend(&wire.Header{Dst: 1, Plane: 1}, word); n != 8 || err != nil {
				t.Errorf("the other plane: %d, %v", n, err)
			}
			transporttest.Close(t, e[0], e[1])
			sh(t, c.mends)
			mended = true
			waitActive(t, devices)
			e = connect(t, devices, 2, 2, rdma.ListenOptions{})
			if err := deliver(t, e); err != nil {
				t.Errorf("after it was mended: %v", err)
			}
			transporttest.Close(t, e[0], e[1])
		})
	}
}

// TestLossUnacknowledged uses planes without acknowledgements that lose packets, or whose link is down. They fail
// with an error that names ranks, plane and epoch. Frames that arrive before are correct.
func TestLossUnacknowledged(t *testing.T) {
	devices := ends(t)
	for _, c := range []struct {
		name, breaks, mends string
		is                  error
	}{
		{"one in ten", "tc qdisc add dev pa0 root netem loss 10%", "tc qdisc del dev pa0 root", transport.ErrDark},
		{"all", "tc qdisc add dev pa0 root netem loss 100%", "tc qdisc del dev pa0 root", transport.ErrDark},
		{"link down", "ip link set pb0 down", "ip link set pb0 up; " + restore, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := unacknowledged
			o.Timeout = impatient
			e := connect(t, devices, 2, 1, o)
			require.NoError(t, deliver(t, e))
			sh(t, c.breaks)
			defer func() {
				transporttest.Close(t, e[0], e[1])
				sh(t, c.mends)
				waitActive(t, devices)
			}()
			var err error
			for range 1000 {
				if err = deliver(t, e); err != nil {
					break
				}
			}
			t.Log(err)
			if err == nil || c.is != nil && !errors.Is(err, c.is) || c.is == nil && !errors.Is(err, transport.ErrDark) &&
				!errors.Is(err, rdma.ErrDevice) {
				t.Errorf("%v", err)
			} else if s := err.Error(); !strings.Contains(s, "rank ") || !strings.Contains(s, "plane 0, epoch 5") {
				t.Errorf("%q does not say where", s)
			}
		})
	}
}

// TestRemovedDevice removes a device that a communicator uses. The error comes at once.
func TestRemovedDevice(t *testing.T) {
	devices := ends(t)
	if len(devices) < 2 {
		t.Skip("one plane only")
	}
	names := strings.Split(strings.Fields(os.Getenv(devicesEnv))[1], ",")
	d, err := Library{}.Open(names[1])
	require.NoError(t, err)
	o := rdma.ListenOptions{Rank: 0, Ranks: 1, Service: rdma.Service{Timeout: impatient},
		Planes: []rdma.PlaneOptions{{Device: d, Port: 1, GIDIndex: -1}}}
	l, err := rdma.Listen(o)
	require.NoError(t, err)
	// With some drivers, the kernel waits until every process has closed the device.
	removal := exec.Command("rdma", "link", "delete", names[1])
	require.NoError(t, removal.Start())
	var ev rdma.Event
	some := false
	for start := time.Now(); !some && time.Since(start) < 5*time.Second; time.Sleep(10 * time.Millisecond) {
		if ev, some, err = d.Event(); err != nil {
			t.Error(err)
		}
	}
	transporttest.Close(t, l, d)
	for _, pair := range devices { // else the removal would wait for them
		transporttest.Close(t, pair[0], pair[1])
	}
	if err := removal.Wait(); err != nil {
		t.Error(err)
	}
	sh(t, "rdma link add "+names[1]+" type rxe netdev pb1")
	if !some {
		t.Skip("this driver sends no event when it is removed, and is not removed while a device is open")
	}
	if ev.Kind != rdma.DeviceFatal {
		t.Errorf("%+v", ev)
	}
}

// restore adds the routes that plane 0 lost with its link.
const restore = "ip route replace 10.0.0.2 dev pa0 src 10.0.0.1 table 1000; " +
	"ip route replace 10.0.0.1 dev pb0 src 10.0.0.2 table 2000"

// waitActive waits until all ports are up.
func waitActive(t *testing.T, devices [][2]rdma.Device) {
	t.Helper()
	for start := time.Now(); time.Since(start) < time.Minute; time.Sleep(50 * time.Millisecond) {
		up := true
		for _, pair := range devices {
			for _, d := range pair {
				info, err := d.Port(1)
				up = up && err == nil && info.Active
			}
		}
		if up {
			return
		}
	}
	t.Fatal("ports do not come up")
}

// BenchmarkTransport is compared with ib_write_bw and ib_write_lat of perftest.
func BenchmarkTransport(b *testing.B) {
	devices := ends(b)
	for _, c := range []struct {
		name string
		o    rdma.ListenOptions
	}{
		{"RC", rdma.ListenOptions{}},
		{"RC-32slots", rdma.ListenOptions{Slots: 32}},
		{"UC", unacknowledged},
	} {
		b.Run(c.name, func(b *testing.B) {
			transporttest.Config{
				Open: func(t testing.TB, ranks, planes int) []transport.Endpoint {
					return connect(t, devices, ranks, planes, c.o)
				},
			}.Benchmark(b)
		})
	}
}
