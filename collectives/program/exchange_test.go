package program

import (
	"fmt"
	"strings"
	"testing"

	"lightpath/internal/require"
	"lightpath/plans"
	"lightpath/plans/circuit"
)

// TestLowerExchange lowers three messages of a pair over two holds of one plane, with durations 3:1, and one hold of
// another. The messages are cut at the ends of holds and messages, and carry the epochs of their circuits.
func TestLowerExchange(t *testing.T) {
	hold := func(us float64, to ...int) plans.Entry {
		return plans.Entry{Kind: plans.Hold, To: to, EndUS: us}
	}
	plan := &plans.Plan{Planes: [][]plans.Entry{
		{hold(3, 1, 2, -1), hold(9, 2, 0, 1), hold(1, 1, 0, 2)},
		{hold(4, 1, -1, -1)},
	}}
	current := []circuit.Permutation{{1, 2, -1}, {-1, 0, 1}}
	messages := []Message{{Peer: 1, Bytes: 50}, {Peer: 1}, {Peer: 2, Bytes: 7}, {Peer: 1, Bytes: 30}}
	sender, err := LowerExchange(ExchangeArgs{Rank: 0, Ranks: 3, Plan: plan, Current: current}, messages, nil)
	require.NoError(t, err)
	// 80 bytes in the ratio 3 : 1 : 4 end at 30, 40 and 80.
	if got, want := describe(sender, Send), `plane 0: to 1 message 0 number 0 at 0: 30 bytes, epoch 0
plane 0: moves to [2 0 1]
plane 0: to 2 message 2 number 0 at 0: 7 bytes, epoch 1
plane 0: moves to [1 0 2]
plane 0: to 1 message 0 number 0 at 30: 10 bytes, epoch 2
plane 1: moves to [1 -1 -1]
plane 1: to 1 message 0 number 0 at 40: 10 bytes, epoch 1
plane 1: to 1 message 3 number 2 at 0: 30 bytes, epoch 1
`; got != want {
		t.Errorf("sender:\n%swant:\n%s", got, want)
	}
	receiver, err := LowerExchange(ExchangeArgs{Rank: 1, Ranks: 3, Plan: plan, Current: current}, nil,
		[]Message{{Bytes: 50}, {}, {Bytes: 30}})
	require.NoError(t, err)
	if got, want := describe(receiver, Recv), `plane 0: to 0 message 0 number 0 at 0: 30 bytes, epoch 0
plane 0: to 0 message 0 number 0 at 30: 10 bytes, epoch 2
plane 1: to 0 message 0 number 0 at 40: 10 bytes, epoch 1
plane 1: to 0 message 2 number 2 at 0: 30 bytes, epoch 1
`; got != want {
		t.Errorf("receiver:\n%swant:\n%s", got, want)
	}
	if s := sender.Switches(0); s != 2 {
		t.Errorf("%d switches of plane 0", s)
	}
}

// describe lists the sends and reconfigurations of a rank, or its receives, by plane.
func describe(p *Program, kind Kind) string {
	var b strings.Builder
	for j := range p.Lanes {
		list := p.Lanes[j].TX
		if kind == Recv {
			list = p.Lanes[j].RX
		}
		for _, id := range list {
			in := &p.Code[id]
			if in.Kind == Reconfigure {
				fmt.Fprintf(&b, "plane %d: moves to %v\n", j, p.Configs[j][in.Config])
				continue
			}
			mem := in.Src
			if kind == Recv {
				mem = in.Dst
			}
			if len(mem) != 1 || mem[0].Off != in.Base || mem[0].Len != in.Bytes || in.Route != in.Epoch {
				fmt.Fprintf(&b, "segments %v, route %d: ", mem, in.Route)
			}
			fmt.Fprintf(&b, "plane %d: to %d message %d number %d at %d: %d bytes, epoch %d\n", j, in.Peer, mem[0].Msg,
				in.Step, in.Base, in.Bytes, in.Epoch)
		}
	}
	return b.String()
}
