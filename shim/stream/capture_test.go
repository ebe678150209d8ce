package stream

import (
	"errors"
	"testing"

	"lightpath/internal/require"
	"lightpath/shim/comm"
	"lightpath/shim/device"
	"lightpath/shim/device/devicetest"
	"lightpath/shim/errdefs"
)

// reissued gives the handle of a stream to another stream, of another device, when number changes.
type reissued struct {
	devicetest.Peers
	first, second device.Stream
	number        uint64
	entered       int // calls of Enter
}

func (r *reissued) now() device.Stream {
	if r.number == 1 {
		return r.first
	}
	return r.second
}

func (r *reissued) StreamID(device.Stream) (uint64, error) { return r.number, nil }

func (r *reissued) Enter(device.Stream) (int, error) {
	r.entered++
	return r.Peers.Enter(r.now())
}

// TestEnterKnowsStreams: a stream is checked when the communicator first uses it, and a later one with the same handle
// is checked again.
func TestEnterKnowsStreams(t *testing.T) {
	peers := devicetest.NewPeers(Places(), 2)
	defer peers.Driver.Close()
	r := &reissued{Peers: peers, first: peers.NewStreamOn(0), second: peers.NewStreamOn(1), number: 1}
	device.Use(r)
	defer device.Use(nil)
	c := new(comm.Core)
	d := &Device{Context: 1} // of device 0
	deviceSlot.Set(c, d)
	handle := device.LastDefault + 8
	for range 3 {
		require.NoError(t, Enter(c, handle))
		peers.Leave()
	}
	if r.entered != 1 {
		t.Errorf("the driver was asked for the stream's context %d times, want once", r.entered)
	}
	r.number = 2
	if err := Enter(c, handle); !errors.Is(err, errdefs.ErrInvalidArgument) || r.entered != 2 {
		t.Errorf("a stream of another device: error %v after %d checks", err, r.entered)
	}
}

// TestAcceptedStreams: the last streams are known, and a new number of a handle replaces its old one.
func TestAcceptedStreams(t *testing.T) {
	var a accepted
	for s := range device.Stream(6) {
		a.add(s+10, uint64(s)+100)
	}
	a.add(12, 200)
	for s, want := range map[device.Stream]uint64{10: 0, 11: 0, 12: 200, 13: 103, 15: 105, 99: 0} {
		if got := a.number(s); got != want {
			t.Errorf("stream %d: number %d, want %d", s, got, want)
		}
	}
}
