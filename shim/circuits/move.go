package circuits

import (
	"encoding/json"

	"lightpath/plans/circuit"
	"lightpath/shim/control"
)

// Move is a move of a plane that a leader orders while it holds the plane and no operation is under way. All ranks
// agree to it, whether they are in a call or not.
type Move struct {
	Plane  int
	Epoch  uint32
	Target circuit.Permutation // of ports
}

// Message returns the message to the ranks.
func (m *Move) Message() *control.Message {
	body, _ := json.Marshal(m) // these types have no errors
	return &control.Message{Kind: control.MsgPrepare, Body: body}
}

// ReadMove reads a move. No data of this rank is on the plane: its last operation there has ended at all ranks.
func (m *Machine) ReadMove(body []byte) (move Move, ok bool) {
	ok = control.DecodeStrict(body, &move) == nil && move.Plane >= 0 && move.Plane < len(m.standing) &&
		move.Target.Validate(m.cfg.Places.Size()) == nil
	return move, ok
}
