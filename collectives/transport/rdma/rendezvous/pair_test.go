package rendezvous

import (
	"errors"
	"testing"

	"lightpath/collectives/transport"
	"lightpath/collectives/transport/messages"
	"lightpath/collectives/transport/rdma"
)

// TestUnexpectedImmediates checks that an unexpected write is an error and changes no count.
func TestUnexpectedImmediates(t *testing.T) {
	e := &Endpoint{}
	for name, c := range map[string]rdma.Completion{
		"message that was not offered":  {Imm: immMessage<<immShift | 1},
		"message of another number":     {Imm: immMessage << immShift},
		"message of other bytes":        {Imm: immMessage << immShift, Bytes: 99},
		"offer of another number":       {Imm: immOffer<<immShift | 3, Bytes: offerSize},
		"offer of other bytes":          {Imm: immOffer<<immShift | 2, Bytes: offerSize - 1},
		"immediate of no kind":          {Imm: 2 << immShift},
		"offer beyond the window":       {Imm: immOffer<<immShift | 2 + window, Bytes: offerSize},
		"message before it was offered": {Imm: immMessage<<immShift | 2, Bytes: 100},
	} {
		q := &pair{plane: &plane{e: e}, offered: 2, sent: 2, received: 1, offers: 1}
		switch name {
		case "message of other bytes":
			q.received, q.offers = 0, 1
		case "offer beyond the window":
			q.offered, q.sent = 2+window, 2
		}
		q.recvs.Push(item{bytes: 100, group: &messages.Group{}})
		before := *q
		if err := q.arrived(&c); !errors.Is(err, transport.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if q.offered != before.offered || q.received != before.received || q.recvs.Len() != 1 {
			t.Errorf("%s: a count has changed", name)
		}
	}
}
