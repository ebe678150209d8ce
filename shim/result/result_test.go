package result

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"lightpath/shim/control"
)

// TestErrorsTravel: every kind of error keeps its kind on the way to other ranks.
func TestErrorsTravel(t *testing.T) {
	for _, row := range table {
		class, text := Encode(fmt.Errorf("here: %w", row.is))
		err := Decode(&control.Message{Arg: class, Body: []byte(text)})
		if !errors.Is(err, row.is) || Of(err) != row.to {
			t.Errorf("%v became %v", row.is, err)
		}
	}
	_, refused := os.Open("/no such file")
	for _, system := range []error{fmt.Errorf("socket: %w", syscall.EMFILE), refused} {
		class, text := Encode(system)
		if err := Decode(&control.Message{Arg: class, Body: []byte(text)}); Of(system) != SystemError ||
			Of(err) != SystemError {
			t.Errorf("%v became %v", system, err)
		}
	}
	class, text := Encode(errors.New("strange"))
	if err := Decode(&control.Message{Arg: class, Body: []byte(text)}); Of(err) != InternalError {
		t.Error(err)
	}
}
