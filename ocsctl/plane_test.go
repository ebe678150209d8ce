package ocsctl_test

import (
	"errors"
	"strings"
	"testing"

	"lightpath/ocsctl"
)

func TestCheckVersions(t *testing.T) {
	for _, c := range []struct {
		library, controller string
		good                bool
	}{
		{"0.1.0", "0.1.0", true}, {"0.1.0", "0.1.9", true}, {"", "0.1.0", true}, {"0.1.0", "", true},
		{"0.1.0", "0.2.0", false}, {"1.1.0", "0.1.0", false}, {"dev", "0.1.0", false}, {"dev", "dev", true},
	} {
		err := ocsctl.CheckVersions(c.library, c.controller)
		if (err == nil) != c.good {
			t.Errorf("%q and %q: %v", c.library, c.controller, err)
		}
		if err != nil && (!errors.Is(err, ocsctl.ErrVersion) || !strings.Contains(err.Error(), c.library) ||
			!strings.Contains(err.Error(), c.controller)) {
			t.Errorf("%q and %q: %v", c.library, c.controller, err)
		}
	}
}
