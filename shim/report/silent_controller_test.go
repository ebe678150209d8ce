package report_test

import (
	"strings"
	"testing"

	"lightpath/internal/assert"
	"lightpath/ocsctl"
	"lightpath/shim"
	"lightpath/shim/calls"
	"lightpath/shim/circuits"
	"lightpath/shim/endpoints"
	"lightpath/shim/shimtest"
	"lightpath/shim/status"
)

// silentClient is a connection to a controller that does not grant planes and does not answer.
type silentClient struct {
	endpoints.Client
	stopped chan struct{} // closed: it grants planes again
}

func (s silentClient) Waiting(int) (string, error) { return "", ocsctl.ErrControlLost }

func (s silentClient) Acquire(l ocsctl.Lease) (uint64, error) {
	<-s.stopped
	return s.Client.Acquire(l)
}

// TestStatusNamesSilentController: while calls wait for tickets, the diagnosis begins with the controller that does not
// answer.
func TestStatusNamesSilentController(t *testing.T) {
	dir := shimtest.UseStatusDir(t)
	t.Setenv("LIGHTPATH_ITERATION", "off") // the call waits 20 s for planes, not 2 s
	shimtest.UsePath(t, "circuits", 2)
	w := shimtest.NewWorld(t, 2)
	silent := silentClient{stopped: make(chan struct{})}
	for _, c := range w.Comms {
		at := circuits.Of(c).Controller
		silent.Client = at.Client
		at.Client = silent
	}
	done := make(chan []error, 1)
	go func() {
		done <- w.Each(func(c *shim.Comm) error {
			return shim.Run([]calls.Call{shimtest.AllReduce(c, make([]float32, 1<<16))})
		})
	}()
	c := shimtest.AwaitStatus(t, dir, func(c *status.Comm) bool {
		return c.State == status.Waiting && strings.HasPrefix(c.Diagnosis, "the controller at ")
	})
	assert.Contains(t, c.Diagnosis, ".sock has not answered since ", "ranks 0-1", "waits for the ticket of operation 1")
	close(silent.stopped)
	shimtest.NoErrors(t, <-done)
}
