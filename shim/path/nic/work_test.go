package nic

import (
	"errors"
	"testing"

	"lightpath/internal/require"
	"lightpath/shim/device"
	"lightpath/shim/device/devicetest"
	"lightpath/shim/memory"
	"lightpath/shim/stream"
)

// TestExchangeOfNoGraph: the word of an exchange is free again if the driver cannot tell when its graph is gone.
func TestExchangeOfNoGraph(t *testing.T) {
	d := devicetest.New(stream.Places(), 1)
	defer d.Close()
	device.Use(d)
	defer device.Use(nil)
	_, err := d.Enter(d.NewStreamOn(0))
	require.NoError(t, err)
	defer d.Leave()
	x := new(Path)
	x.launch.capture.ID = 1
	d.Fail("Retain", 0)
	if _, err = x.take(0); !errors.Is(err, device.ErrDriver) {
		t.Errorf("error %v", err)
	}
	k := &x.work.known
	if words := k.pages[0].Size / memory.WordSize; len(k.free) != words || len(k.all) != 0 {
		t.Errorf("%d of %d words are free, %d exchanges kept", len(k.free), words, len(k.all))
	}
}
