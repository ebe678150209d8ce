package planning

import (
	"encoding/binary"
	"testing"

	"lightpath/internal/require"
	"lightpath/shim/calls"
)

// TestManyPlans: a rank may lack the plan of a ticket long after other plans have displaced it.
func TestManyPlans(t *testing.T) {
	b := open(t, siteAt(0, 1))
	id := row(t, b, float32s(calls.AllReduce, 1000)).Best.ID
	for i := range uint32(maxKnown) {
		other := &Agreed{}
		binary.LittleEndian.PutUint32(other.ID[:], i)
		b.known.Remember(other)
	}
	_, err := b.Encoded(id)
	require.NoError(t, err)
}
