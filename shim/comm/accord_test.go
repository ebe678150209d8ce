package comm_test

import (
	"testing"
	"time"

	"lightpath/shim"
	"lightpath/shim/comm"
	"lightpath/shim/shimtest"
)

// TestExchangeAfterAccord: the answer to a step reaches some ranks before the leader. Their next values wait there.
func TestExchangeAfterAccord(t *testing.T) {
	w := shimtest.NewWorld(t, 8)
	w.SetTimeout(10 * time.Second)
	w.Must(func(c *shim.Comm) error {
		for step := range uint64(500) {
			if _, err := c.Accord(step, nil); err != nil {
				return err
			}
			if _, err := comm.Exchange(c, c.Rank); err != nil {
				return err
			}
		}
		return nil
	})
}
