package cluster

import (
	"math/rand/v2"
	"testing"

	"lightpath/plans/lumos/place"
)

// TestClosPathsHangTogether follows the links of single flows: each begins at the switch where the one before
// ends, up to a switch above both leaves and down again.
func TestClosPathsHangTogether(t *testing.T) {
	for _, name := range []string{"clos-3-25.6", "clos-4-25.6"} {
		f, err := ParseFabric(name, 4096)
		if err != nil {
			t.Fatal(err)
		}
		c := newClos(&f, 1)
		r := rand.New(rand.NewPCG(2, 2))
		for range 500 {
			flow := place.Flow{From: int32(r.IntN(4096)), To: int32(r.IntN(4096)), Share: 1}
			c.route(flow)
			uses := c.phase()
			var up, down [maxTiers]int
			for level := range up {
				up[level], down[level] = -1, -1
			}
			for _, u := range uses {
				level, id := int(u.Link)/c.links/2, int(u.Link)%c.links
				if int(u.Link)/c.links%2 == 0 {
					up[level] = id
				} else {
					down[level] = id
				}
			}
			a, b, above, width := int(flow.From)/c.k, int(flow.To)/c.k, 0, 1
			for level := 0; a != b; level++ {
				if level == c.levels {
					break // the highest tier reaches everything
				}
				if up[level]/(c.k*width) != a || down[level]/(c.k*width) != b {
					t.Fatalf("%s: tier %d: links %d and %d are not those of parts %d and %d", name, level, up[level], down[level], a,
						b)
				}
				if up[level]/c.k%width != above || up[level]%(c.k*width) != down[level]%(c.k*width) {
					t.Fatalf("%s: tier %d: links %d and %d do not meet above switch %d", name, level, up[level], down[level], above)
				}
				above, width = above*c.k+up[level]%c.k, width*c.k
				a, b = a/c.k, b/c.k
				uses = uses[:len(uses)-2]
			}
			if len(uses) != 0 {
				t.Fatalf("%s: %d links too many", name, len(uses))
			}
		}
	}
}
