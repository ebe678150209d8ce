package gnmi_test

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os/exec"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"github.com/redis/go-redis/v9"

	"lightpath/ocsctl/device"
	"lightpath/ocsctl/device/gnmi"
)

// startRedis starts Debian's Redis server, and returns its address.
func startRedis(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skipf("Redis is not installed: %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	server := exec.Command(program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir())
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Kill() //nolint:errcheck // it may have ended
		server.Wait()         //nolint:errcheck // killed
	})
	eventually(t, func() error {
		c := redis.NewClient(&redis.Options{Addr: address, Protocol: 2, MaxRetries: -1})
		defer c.Close() //nolint:errcheck // only asked
		return c.Ping(t.Context()).Err()
	})
	return address
}

// eventually repeats check until it is satisfied.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// TestRedis: writes by gNMI appear in SONiC's databases as SONiC writes them, in a real Redis.
func TestRedis(t *testing.T) {
	address := startRedis(t)
	database := func(n int) *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: address, DB: n, Protocol: 2})
		t.Cleanup(func() { c.Close() }) //nolint:errcheck // only asked
		return c
	}
	config, state := database(4), database(6)
	if err := errors.Join(
		config.HSet(t.Context(), "OCS_CROSS_CONNECT|9A-9B", "a_side", "9A", "b_side", "9B").Err(),
		config.HSet(t.Context(), "PORT|Ethernet0", "mtu", "9100").Err(),
	); err != nil {
		t.Fatal(err)
	}
	endpoint, d := serve(t, gnmi.Options{Dialect: "sonic-db", Redis: address})
	c := dial(t, endpoint)
	holds := func(db *redis.Client, key string, want map[string]string) {
		t.Helper()
		eventually(t, func() error {
			got, err := db.HGetAll(t.Context(), key).Result()
			if err != nil || !maps.Equal(got, want) {
				return fmt.Errorf("%s: %v, %w; want %v", key, got, err, want)
			}
			return nil
		})
	}
	at := func(id string) *gpb.Path {
		return &gpb.Path{Origin: "sonic-db", Elem: []*gpb.PathElem{{Name: "CONFIG_DB"}, {Name: "localhost"}, {Name: "OCS_CROSS_CONNECT"}, {Name: id}}}
	}
	holds(config, "OCS_CROSS_CONNECT|9A-9B", nil)
	holds(state, "OCS_PORT|1A", map[string]string{"status": "blocked"})
	if _, err := c.Set(t.Context(), &gpb.SetRequest{Update: []*gpb.Update{jsonAt(at("1A-2B"), `{"a_side":"1A","b_side":"2B"}`)}}); err != nil {
		t.Fatal(err)
	}
	holds(config, "OCS_CROSS_CONNECT|1A-2B", map[string]string{"a_side": "1A", "b_side": "2B"})
	holds(state, "OCS_CROSS_CONNECT|1A-2B", map[string]string{"a_side_status": "tuned", "b_side_status": "tuned"})
	holds(state, "OCS_PORT|1A", map[string]string{"status": "tuned", "target_simplex_port_id": "2B"})
	holds(state, "OCS_PORT|2B", map[string]string{"status": "tuned", "target_simplex_port_id": "1A"})
	// The ghost of SONiC's bug reports: in the state, and not in the configuration.
	if err := d.Inject(device.Fault{Kind: device.GhostConnect, In: 0, Out: 3}); err != nil {
		t.Fatal(err)
	}
	holds(state, "OCS_CROSS_CONNECT|1A-4B", map[string]string{"a_side_status": "tuned", "b_side_status": "tuned"})
	holds(config, "OCS_CROSS_CONNECT|1A-4B", nil)
	if err := d.Inject(device.Fault{Kind: device.Clear}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Set(t.Context(), &gpb.SetRequest{Delete: []*gpb.Path{at("1A-2B")}}); err != nil {
		t.Fatal(err)
	}
	holds(config, "OCS_CROSS_CONNECT|1A-2B", nil)
	holds(state, "OCS_CROSS_CONNECT|1A-2B", nil)
	holds(state, "OCS_CROSS_CONNECT|1A-4B", nil)
	holds(state, "OCS_PORT|1A", map[string]string{"status": "blocked"})
	holds(config, "PORT|Ethernet0", map[string]string{"mtu": "9100"})
}

// TestRedisRefused: only the dialect that lives in Redis, only on this host.
func TestRedisRefused(t *testing.T) {
	d, err := device.New(device.Config{Ports: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []gnmi.Options{{Dialect: "ocp", Redis: "127.0.0.1:6379"}, {Dialect: "sonic-db", Redis: "192.0.2.1:6379"}} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := gnmi.Serve(t.Context(), l, d, o); !errors.Is(err, gnmi.ErrRedis) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
