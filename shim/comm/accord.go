package comm

import (
	"encoding/json"
	"fmt"
	"sync"

	"lightpath/internal/brief"
	"lightpath/shim/control"
)

// accord is the leader's part in [Core.Accord]: the ranks' results of the step under way.
type accord struct {
	mu   sync.Mutex
	said int
	rank int // the lowest rank that failed
	why  string
}

// Accord gathers the result of a step from all ranks. failed is this rank's error, nil if the step succeeded. Accord
// returns the error of a failed rank, "" if all succeeded.
func (c *Core) Accord(step uint64, failed error) (why string, err error) {
	m := &control.Message{Kind: control.MsgManaged, Seq: step}
	if failed != nil {
		m.Body = []byte(brief.Text(failed.Error(), 1024))
	}
	if err := c.Star.ToLeader(m); err != nil {
		return "", err
	}
	answer, err := c.Await(control.MsgAccord, step)
	if err != nil {
		return "", err
	}
	return string(answer.Body), nil
}

// addResult records a rank's result at the leader. After the last it tells all ranks.
func (c *Core) addResult(m *control.Message) {
	a := &c.accord
	a.mu.Lock()
	if len(m.Body) > 0 && (a.why == "" || int(m.From) < a.rank) {
		a.rank, a.why = int(m.From), string(m.Body)
	}
	a.said++
	complete, why, rank := a.said == c.Ranks, a.why, a.rank
	if complete {
		a.said, a.why = 0, ""
	}
	a.mu.Unlock()
	if !complete {
		return
	}
	answer := &control.Message{Kind: control.MsgAccord, Seq: m.Seq}
	if why != "" {
		answer.Body = fmt.Appendf(nil, "%s: %s", c.Table[rank].Where(), why)
	}
	c.ToAll(answer)
}

// Exchange gives every rank the values of all ranks, such as the addresses of their planes. All ranks call it.
func Exchange[A any](c *Core, mine A) ([]A, error) {
	if c.Rank != 0 {
		body, err := json.Marshal(mine)
		if err != nil {
			return nil, err
		}
		if err := c.Star.ToLeader(&control.Message{Kind: control.MsgPlanes, Body: body}); err != nil {
			return nil, err
		}
		m, err := c.Await(control.MsgPlanes, 0)
		if err != nil {
			return nil, err
		}
		var all []A
		if err := control.DecodeStrict(m.Body, &all); err != nil {
			return nil, err
		}
		if len(all) != c.Ranks {
			return nil, fmt.Errorf("%w: planes of %d ranks", control.ErrMessage, len(all))
		}
		return all, nil
	}
	all := make([]A, c.Ranks)
	all[0] = mine
	for range c.Ranks - 1 {
		m, err := c.Await(control.MsgPlanes, 0)
		if err != nil {
			return nil, err
		}
		if err := control.DecodeStrict(m.Body, &all[m.From]); err != nil {
			return nil, fmt.Errorf("rank %d: %w", m.From, err)
		}
	}
	body, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	c.Star.Broadcast(&control.Message{Kind: control.MsgPlanes, Body: body}, -1)
	return all, nil
}
