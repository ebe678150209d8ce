package journal

import (
	"reflect"
	"testing"

	"lightpath/internal/require"
	"lightpath/ocsctl/controller"
	"lightpath/plans/circuit"
)

// FuzzPlane: a decoded state of a plane is valid, and encodes to the same state.
func FuzzPlane(f *testing.F) {
	for _, r := range []controller.Recovered{
		{}, {Epoch: 3, Map: circuit.Shift(4, 1), Failed: true, Disabled: "x"},
		{Epoch: 3, Epochs: []uint32{2, 2, 3, 0}, Map: circuit.Shift(4, 1)},
		{Map: circuit.Shift(4, 1), Jobs: []controller.Job{{ID: "1", Ports: []int{3, 0}, Mask: 3, Fixed: true}}},
		{Map: circuit.AllDark(2), Intent: &controller.Intent{Plane: 1, Epoch: 3, To: circuit.Shift(2, 1),
			Epochs: []uint32{4, 1}}},
	} {
		s := State{r, 9, 2}
		value, err := EncodePlane(1, &s, Author{"a", 5})
		require.NoError(f, err)
		f.Add(value)
	}
	f.Add([]byte(`{"version":1,"plane":1,"map":[0,0]}`))
	f.Add([]byte(`{"version":3}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		j, s, err := DecodePlane("/p/"+PlaneKey(1), data)
		if err != nil {
			return
		}
		if j != 1 || s.Map != nil && s.Map.Validate(len(s.Map)) != nil || s.Epoch >= s.Reserved {
			t.Fatalf("took plane %d: %+v", j, s)
		}
		value, err := EncodePlane(j, &s, Author{})
		require.NoError(t, err)
		if _, again, err := DecodePlane(PlaneKey(1), value); err != nil || !reflect.DeepEqual(s, again) {
			t.Fatalf("%+v became %+v: %v", s, again, err)
		}
	})
}
