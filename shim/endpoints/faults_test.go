package endpoints

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// askedClient answers when the test says so.
type askedClient struct {
	Client
	answers chan error
}

func (c askedClient) Waiting(int) (string, error) { return "", <-c.answers }

// TestSilentController: a controller is silent from the first question without an answer to its next answer.
func TestSilentController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := askedClient{answers: make(chan error)}
		a := &Controller{Client: client}
		check := func(when string, wait time.Duration, want bool) (since time.Time) {
			t.Helper()
			since, silent := a.Silent(wait)
			if silent != want {
				t.Errorf("%s: silent %v", when, silent)
			}
			return since
		}
		asked := time.Now()
		check("just asked", 0, false)
		if check("after a second", SilentAfter, true) != asked {
			t.Error("it counts from another question than the first")
		}
		client.answers <- errors.New("no answer")
		synctest.Wait()
		if check("after the error", 0, true) != asked {
			t.Error("it counts from the last question")
		}
		client.answers <- nil
		synctest.Wait()
		go func() { client.answers <- nil }()
		check("answers again", SilentAfter, false)
	})
}
