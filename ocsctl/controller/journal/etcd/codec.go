package etcd

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"lightpath/ocsctl/controller"
	"lightpath/ocsctl/controller/journal"
)

// Values are JSON, so that an operator can read them with etcdctl. Each has a version. Unknown fields are an error.

// leaderValue is the value of key "leader", which has the lease of the rule. The key's create revision is the token.
type leaderValue struct {
	Version  int       `json:"version"`
	Name     string    `json:"name"`
	Software string    `json:"software"`
	Address  string    `json:"address,omitempty"`
	Instance string    `json:"instance"` // unique ID of the client
	Host     string    `json:"host"`
	PID      int       `json:"pid"`
	Since    time.Time `json:"since"`
}

// segmentValue holds events that were written together. Its key is "history/" and the number of its first event.
type segmentValue struct {
	Version int                `json:"version"`
	Events  []controller.Event `json:"events"`
}

// Keys below the prefix.
const (
	formatKey  = "format"
	leaderKey  = "leader"
	planesKey  = "planes/"
	historyKey = "history/"
)

func segmentKey(first uint64) string { return fmt.Sprintf("%s%020d", historyKey, first) }

// decodeSegment returns the events of a segment, the oldest first.
func decodeSegment(key string, data []byte) ([]controller.Event, error) {
	var v segmentValue
	if err := journal.Decode(key, data, &v); err != nil {
		return nil, err
	}
	first, err := strconv.ParseUint(key[strings.LastIndexByte(key, '/')+1:], 10, 64)
	switch {
	case err != nil:
		err = errors.New("the key has no number")
	case len(v.Events) == 0:
		err = errors.New("events: there are none")
	case v.Events[0].Seq != first:
		err = fmt.Errorf("events[0].seq: %d is not the number of the key", v.Events[0].Seq)
	}
	for i := 1; i < len(v.Events) && err == nil; i++ {
		if v.Events[i].Seq <= v.Events[i-1].Seq {
			err = fmt.Errorf("events[%d].seq: %d does not follow %d", i, v.Events[i].Seq, v.Events[i-1].Seq)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("etcd: %s: %w: %w", key, err, journal.ErrCorrupt)
	}
	return v.Events, nil
}
