package circuit

import (
	"testing"
)

func TestIndex(t *testing.T) {
	var x Index
	if _, ok := x.Find(Shift(4, 1)); ok || x.Len() != 0 {
		t.Fatal("an empty index finds something")
	}
	for i := range 50 {
		for d := range 8 {
			id, fresh := x.Add(Shift(8, d))
			if id != d || fresh != (i == 0) {
				t.Fatalf("round %d: shift %d is number %d, fresh %v", i, d, id, fresh)
			}
		}
	}
	if id, ok := x.Find(Shift(8, 3)); !ok || id != 3 || !x.At(3).Equal(Shift(8, 3)) || x.Len() != 8 {
		t.Fatalf("found %d %v of %d", id, ok, x.Len())
	}
	if _, ok := x.Find(Xor(8, 1)); ok {
		t.Fatal("finds what was never added")
	}
	if id, fresh := x.Add(Shift(9, 1)); id != 8 || !fresh {
		t.Fatal("permutations of other sizes are others")
	}
}
