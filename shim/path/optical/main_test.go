package optical_test

import (
	"testing"

	"lightpath/shim/shimtest"
)

func TestMain(m *testing.M) { shimtest.Main(m, nil) }
