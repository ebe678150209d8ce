package gnmi_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"lightpath/internal/require"
	"lightpath/ocsctl/device"
	devicegnmi "lightpath/ocsctl/device/gnmi"
	"lightpath/ocsctl/driver"
	"lightpath/ocsctl/driver/gnmi"
	"lightpath/ocsctl/internal/memnet"
	"lightpath/plans/circuit"
)

// relay is a server between the driver and a switch. It passes calls on, except where a test sets a function.
type relay struct {
	gpb.UnimplementedGNMIServer
	to           gpb.GNMIClient
	capabilities func(*gpb.CapabilityResponse)
	get          func(context.Context, *gpb.GetRequest) (*gpb.GetResponse, error)
	set          func(context.Context, *gpb.SetRequest) (*gpb.SetResponse, error)
	subscribe    func(gpb.GNMI_SubscribeServer) error
}

func (r *relay) Capabilities(ctx context.Context, req *gpb.CapabilityRequest) (*gpb.CapabilityResponse, error) {
	a, err := r.to.Capabilities(ctx, req)
	if r.capabilities != nil {
		r.capabilities(a)
	}
	return a, err
}

func (r *relay) Get(ctx context.Context, req *gpb.GetRequest) (*gpb.GetResponse, error) {
	if r.get != nil {
		return r.get(ctx, req)
	}
	return r.to.Get(ctx, req)
}

func (r *relay) Set(ctx context.Context, req *gpb.SetRequest) (*gpb.SetResponse, error) {
	if r.set != nil {
		return r.set(ctx, req)
	}
	return r.to.Set(ctx, req)
}

func (r *relay) Subscribe(s gpb.GNMI_SubscribeServer) error {
	if r.subscribe != nil {
		return r.subscribe(s)
	}
	return status.Error(codes.Unimplemented, "no subscriptions")
}

// start serves the relay of a switch on a port of this host until the test ends.
func (r *relay) start(t *testing.T, endpoint string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r.startOn(t, l, endpoint)
	return l.Addr().String()
}

func (r *relay) startOn(t *testing.T, l net.Listener, endpoint string, o ...grpc.DialOption) {
	t.Helper()
	o = append(o, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient("passthrough:///"+endpoint, o...)
	require.NoError(t, err)
	r.to = gpb.NewGNMIClient(conn)
	g := grpc.NewServer()
	gpb.RegisterGNMIServer(g, r)
	go g.Serve(l) //nolint:errcheck // it ends by Stop
	t.Cleanup(func() {
		g.Stop()
		conn.Close() //nolint:errcheck // the test is over
	})
}

var (
	quick   = driver.Tolerance{Settle: 300 * time.Millisecond, Averaging: time.Millisecond}
	patient = driver.Tolerance{Settle: 20 * time.Second, Averaging: time.Millisecond}
)

// TestOtherSwitches: what other servers may do differently changes nothing.
func TestOtherSwitches(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*relay){
		"no subscriptions": func(*relay) {},
		"a subscription that ends": func(r *relay) {
			r.subscribe = func(gpb.GNMI_SubscribeServer) error { return nil }
		},
		"a subscription of nonsense": func(r *relay) {
			r.subscribe = func(s gpb.GNMI_SubscribeServer) error {
				bad := &gpb.Update{Path: &gpb.Path{Origin: "x"}, Val: &gpb.TypedValue{}}
				update := &gpb.SubscribeResponse_Update{Update: &gpb.Notification{Update: []*gpb.Update{bad}}}
				return s.Send(&gpb.SubscribeResponse{Response: update})
			}
		},
		"answers leaf by leaf": func(r *relay) {
			r.get = func(ctx context.Context, req *gpb.GetRequest) (*gpb.GetResponse, error) {
				req.Encoding = gpb.Encoding_PROTO
				return r.to.Get(ctx, req)
			}
		},
		"empty tables are not found": func(r *relay) {
			r.get = func(ctx context.Context, req *gpb.GetRequest) (*gpb.GetResponse, error) {
				a, err := r.to.Get(ctx, req)
				for _, n := range a.GetNotification() {
					for _, u := range n.GetUpdate() {
						if string(u.GetVal().GetJsonIetfVal()) == "null" || string(u.GetVal().GetJsonIetfVal()) == "{}" {
							return nil, status.Error(codes.NotFound, "empty")
						}
					}
				}
				return a, err
			}
		},
		"an answer that is lost, of a change that is made": func(r *relay) {
			r.set = func(ctx context.Context, req *gpb.SetRequest) (*gpb.SetResponse, error) {
				if _, err := r.to.Set(ctx, req); err != nil {
					return nil, err
				}
				return nil, status.Error(codes.Unavailable, "gone")
			}
		},
	} {
		for _, dialect := range []string{"ocp", "sonic-db", "oc-optical-switch"} {
			t.Run(name+"/"+dialect, func(t *testing.T) {
				d := newDevice(t)
				r := &relay{}
				prepare(r)
				sw := open(t, d, driver.Target{Endpoint: r.start(t, serve(t, d, devicegnmi.Options{Dialect: dialect})),
					Tolerance: patient})
				before := circuit.AllDark(4)
				for by := range 3 {
					all, err := sw.Apply(t.Context(), driver.Change{Before: before, After: circuit.Shift(4, by),
						Want: driver.Status, Token: 1})
					if err != nil || !d.Map().Equal(circuit.Shift(4, by)) || d.Switching() {
						t.Fatalf("%v, %+v; the switch has %v", err, all, d.Map())
					}
					before = circuit.Shift(4, by)
				}
			})
		}
	}
}

// TestRefusals: a refusal of the switch is an error of one line, and the driver does not ask again.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for code, want := range map[codes.Code]error{
		codes.InvalidArgument: driver.ErrRefused, codes.FailedPrecondition: driver.ErrRefused,
		codes.Unauthenticated:  driver.ErrRefused,
		codes.PermissionDenied: driver.ErrRefused, codes.Aborted: driver.ErrRefused,
		// These do not say what was done; the map does.
		codes.Unavailable: driver.ErrNotAsIntended, codes.Internal: driver.ErrNotAsIntended,
		codes.DeadlineExceeded: driver.ErrNotAsIntended,
	} {
		d := newDevice(t)
		asked := 0
		r := &relay{set: func(context.Context, *gpb.SetRequest) (*gpb.SetResponse, error) {
			asked++
			return nil, status.Error(code, "no\nand "+strings.Repeat("no ", 1000))
		}}
		sw := open(t, d, driver.Target{Endpoint: r.start(t, serve(t, d, devicegnmi.Options{})), Tolerance: quick})
		all, err := sw.Apply(t.Context(), driver.Change{Before: circuit.AllDark(4), After: circuit.Shift(4, 1),
			Want: driver.Status, Token: 1})
		if !errors.Is(err, want) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 500 || asked != 1 {
			t.Errorf("%v: %v, asked %d times; want %v", code, err, asked, want)
		}
		for _, v := range all {
			if v.Accepted || v.Observed != circuit.Dark || v.Verified != driver.Unverified || v.Reason == "" {
				t.Errorf("%v: %+v", code, v)
			}
		}
	}
}

// TestDenied: a switch that denies permission because of its users is told from one that obeys another
// controller.
func TestDenied(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{
		"user lightpath is not authorized to write /connections": driver.ErrRefused,
		"permission denied":                             driver.ErrRefused,
		"election_id 1 is smaller than the current one": driver.ErrFenced,
		"Client is not a master":                        driver.ErrFenced,
		"rejected by master arbitration":                driver.ErrFenced,
	} {
		d := newDevice(t)
		r := &relay{set: func(context.Context, *gpb.SetRequest) (*gpb.SetResponse, error) {
			return nil, status.Error(codes.PermissionDenied, text)
		}}
		sw := open(t, d, driver.Target{Endpoint: r.start(t, serve(t, d, devicegnmi.Options{})), Tolerance: quick})
		_, err := sw.Apply(t.Context(), driver.Change{Before: circuit.AllDark(4), After: circuit.Shift(4, 1), Token: 1})
		if !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
}

// TestBusy: the words of a switch that does not do what it is asked reach the operator.
func TestBusy(t *testing.T) {
	t.Parallel()
	d := newDevice(t)
	r := &relay{set: func(context.Context, *gpb.SetRequest) (*gpb.SetResponse, error) {
		return nil, status.Error(codes.Unavailable, "busy")
	}}
	sw := open(t, d, driver.Target{Endpoint: r.start(t, serve(t, d, devicegnmi.Options{})), Tolerance: quick})
	_, err := sw.Apply(t.Context(), driver.Change{Before: circuit.AllDark(4), After: circuit.Shift(4, 1), Token: 1})
	if !errors.Is(err, driver.ErrNotAsIntended) || !strings.Contains(err.Error(), "Unavailable: busy") {
		t.Errorf("%v", err)
	}
}

// TestHostile: the driver refuses answers that are none, in one line.
func TestHostile(t *testing.T) {
	t.Parallel()
	say := func(text string) func(context.Context, *gpb.GetRequest) (*gpb.GetResponse, error) {
		return func(_ context.Context, req *gpb.GetRequest) (*gpb.GetResponse, error) {
			u := &gpb.Update{Path: req.GetPath()[0],
				Val: &gpb.TypedValue{Value: &gpb.TypedValue_JsonIetfVal{JsonIetfVal: []byte(text)}}}
			return &gpb.GetResponse{Notification: []*gpb.Notification{{Update: []*gpb.Update{u}}}}, nil
		}
	}
	circuitOf := func(in, out string) string {
		return `{"name":"` + in + out + `","config":{"input-port-name":"` + in + `","output-port-name":"` + out +
			`"},"state":{"status":"CONNECTED"}}`
	}
	for name, c := range map[string]struct {
		get  func(context.Context, *gpb.GetRequest) (*gpb.GetResponse, error)
		want error
	}{
		"no JSON":            {say(`{"port-connection":`), driver.ErrProtocol},
		"rows without names": {say(`{"port-connection":[{}]}`), driver.ErrProtocol},
		"nested":             {say(strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000)), driver.ErrProtocol},
		"huge":               {say(`"` + strings.Repeat("x", 17<<20) + `"`), driver.ErrProtocol},
		"egress twice": {say(`{"port-connection":[` + circuitOf("1", "5") + "," + circuitOf("2", "5") + `]}`),
			driver.ErrNotMatching},
		"ingress twice": {say(`{"port-connection":[` + circuitOf("1", "5") + "," + circuitOf("1", "6") + `]}`),
			driver.ErrNotMatching},
		"half ours":         {say(`{"port-connection":[` + circuitOf("1", "77") + `]}`), driver.ErrNotMatching},
		"an ingress egress": {say(`{"port-connection":[` + circuitOf("1", "2") + `]}`), driver.ErrNotMatching},
	} {
		d := newDevice(t)
		r := &relay{}
		sw := open(t, d, driver.Target{Endpoint: r.start(t, serve(t, d, devicegnmi.Options{})), Timeout: 20 * time.Second,
			Tolerance: quick})
		r.get = c.get
		refused(t, name, sw, d, c.want)
	}
}

// refused checks that a switch whose answers are of no use is neither read nor changed.
func refused(t *testing.T, name string, sw driver.Switch, d *device.Device, want error) {
	t.Helper()
	if p, err := sw.Read(t.Context()); !errors.Is(err, want) || strings.Contains(err.Error(), "\n") ||
		len(err.Error()) > 500 {
		t.Errorf("%s: %v, %.500v", name, p, err)
	}
	change := driver.Change{Before: circuit.AllDark(4), After: circuit.Shift(4, 1), Token: 1}
	if _, err := sw.Apply(t.Context(), change); err == nil || d.Revision() != 0 {
		t.Errorf("%s: %v, table changed %d times", name, err, d.Revision())
	}
}

// TestEndlessNotifications: a switch that never stops to notify during a change does not fill the memory. The driver
// ends the subscription, and reads the states.
func TestEndlessNotifications(t *testing.T) {
	t.Parallel()
	const most = 64 // messages of 1 MiB
	sent, ended := 0, make(chan struct{})
	d := newDevice(t)
	r := &relay{subscribe: func(s gpb.GNMI_SubscribeServer) error {
		defer close(ended)
		value := &gpb.TypedValue{Value: &gpb.TypedValue_StringVal{StringVal: strings.Repeat("x", 1<<20)}}
		path := &gpb.Path{Elem: []*gpb.PathElem{{Name: "system"}, {Name: "note"}}}
		for ; sent < most; sent++ {
			update := &gpb.SubscribeResponse_Update{Update: &gpb.Notification{Update: []*gpb.Update{{Path: path, Val: value}}}}
			if err := s.Send(&gpb.SubscribeResponse{Response: update}); err != nil {
				return err
			}
		}
		return nil
	}}
	r.set = func(ctx context.Context, req *gpb.SetRequest) (*gpb.SetResponse, error) {
		<-ended
		return r.to.Set(ctx, req)
	}
	sw := open(t, d, driver.Target{Endpoint: r.start(t, serve(t, d, devicegnmi.Options{})), Timeout: time.Minute,
		Tolerance: patient})
	_, err := sw.Apply(t.Context(), driver.Change{Before: circuit.AllDark(4), After: circuit.Shift(4, 1),
		Want: driver.Status})
	if err != nil || sent == most {
		t.Errorf("%v, after %d MiB of notifications", err, sent)
	}
}

// TestSilence: a driver waits for an answer only as long as it may.
func TestSilence(t *testing.T) { synctest.Test(t, silence) }

func silence(t *testing.T) {
	d := newDevice(t)
	behind, before := memnet.Listen(), memnet.Listen()
	serveOn(t, behind, d, devicegnmi.Options{})
	r := &relay{}
	r.startOn(t, before, behind.Addr().String(),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return behind.Dial(ctx, "tcp", address)
		}))
	o := driver.Target{Endpoint: before.Addr().String(), Dial: before.Dial, Timeout: 20 * time.Second, Tolerance: quick}
	sw := open(t, d, o)
	r.get = func(ctx context.Context, _ *gpb.GetRequest) (*gpb.GetResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	refused(t, "silence", sw, d, context.DeadlineExceeded)
}

// TestUnknownModels: a switch that announces nothing known is not guessed at.
func TestUnknownModels(t *testing.T) {
	d := newDevice(t)
	r := &relay{capabilities: func(a *gpb.CapabilityResponse) {
		a.SupportedModels = []*gpb.ModelData{{Name: "openconfig-interfaces"}}
	}}
	_, err := gnmi.Open(t.Context(), driver.Target{Endpoint: r.start(t, serve(t, d, devicegnmi.Options{})),
		Ports: labels(d, 2)})
	if !errors.Is(err, gnmi.ErrDialect) {
		t.Fatal(err)
	}
}
