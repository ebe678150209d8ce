package peer

import (
	"strings"
	"testing"

	"lightpath/shim/bootstrap"
	"lightpath/shim/settings"
)

// TestDirectEligible checks each reason why ranks cannot try to exchange data through device memory.
func TestDirectEligible(t *testing.T) {
	good := func() []bootstrap.Hello {
		return []bootstrap.Hello{{Rank: 0, Identity: "a", Host: "h"}, {Rank: 1, Identity: "a", Host: "h"}}
	}
	auto := settings.Config{Transport: "auto"}
	if why := whyNot(good(), &auto); why != "" {
		t.Errorf("refused: %s", why)
	}
	for want, change := range map[string]func(table []bootstrap.Hello, cfg *settings.Config) []bootstrap.Hello{
		"LIGHTPATH_TRANSPORT=tcp": func(t []bootstrap.Hello, cfg *settings.Config) []bootstrap.Hello {
			cfg.Transport = "tcp"
			return t
		},
		"LIGHTPATH_ALGORITHM": func(t []bootstrap.Hello, cfg *settings.Config) []bootstrap.Hello {
			cfg.Algorithms = map[string]string{"a": "b"}
			return t
		},
		"the fabric has circuits": func(t []bootstrap.Hello, _ *settings.Config) []bootstrap.Hello {
			t[0].Fabric = "f"
			return t
		},
		"17 ranks are more": func(t []bootstrap.Hello, _ *settings.Config) []bootstrap.Hello {
			return make([]bootstrap.Hello, 17)
		},
		"rank 1 (, process 0): no device": func(t []bootstrap.Hello, _ *settings.Config) []bootstrap.Hello {
			t[1].Identity, t[1].NoDevice = "", "no device"
			return t
		},
		"rank 1 (, process 0): NCCL_P2P_LEVEL=LOC": func(t []bootstrap.Hello, _ *settings.Config) []bootstrap.Hello {
			t[1].NoDirect = "NCCL_P2P_LEVEL=LOC"
			return t
		},
		"are not on one host": func(t []bootstrap.Hello, _ *settings.Config) []bootstrap.Hello {
			t[1].Host = "other"
			return t
		},
	} {
		cfg := auto
		if why := whyNot(change(good(), &cfg), &cfg); !strings.Contains(why, want) {
			t.Errorf("%q does not say %q", why, want)
		}
	}
}
