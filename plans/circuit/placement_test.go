package circuit

import "testing"

// TestOverlay: circuits between ranks and other ports go dark. So the map is the same before and after the move that
// does this.
func TestOverlay(t *testing.T) {
	p := Place([]int{4, 1, 3}, 6)
	ranks := Permutation{2, Dark, 0}
	want := Permutation{5, Dark, Dark, 4, 3, Dark}
	for _, at := range []Permutation{{5, 2, Dark, 4, Dark, 1}, want} {
		if got := p.Overlay(nil, at, ranks); !got.Equal(want) {
			t.Errorf("%v becomes %v, want %v", at, got, want)
		}
	}
	if got := p.Restrict(nil, want); !got.Equal(ranks) {
		t.Errorf("the ranks have %v, want %v", got, ranks)
	}
	if got := p.Restrict(nil, Permutation{1, 0, 4, Dark, 3, Dark}); !got.Equal(Permutation{2, Dark, Dark}) {
		t.Errorf("circuits to other ports: %v", got)
	}
}

func TestPlaces(t *testing.T) {
	p := Place([]int{4, 1}, 6)
	if !p.Has(4) || p.Has(3) || p.Size() != 6 || !p.Apart(Place([]int{0, 3}, 6)) || p.Apart(Place([]int{0, 4}, 6)) {
		t.Errorf("%+v", p)
	}
	for _, wrong := range [][]int{{6}, {-1}, {2, 0, 2}} {
		if CheckPorts(wrong, 6) == nil {
			t.Errorf("%v is accepted", wrong)
		}
	}
}
