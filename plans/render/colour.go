package render

import (
	"math"

	"lightpath/internal/svg"
	"lightpath/plans"
)

// fewSteps is up to how many steps colours come from the palette, step i having colour i
// modulo their number; with more, the order of colours tells more than their difference.
const fewSteps = 24

// stepColour returns the colour of a step of this plan.
func (d *drawing) stepColour(step int) string {
	if len(d.steps) <= fewSteps {
		return svg.Colour(step)
	}
	first, last := d.steps[0], d.steps[len(d.steps)-1]
	return svg.Shade((float64(step) - float64(first)) / math.Max(1, float64(last)-float64(first)))
}

// mapColour returns the colour of a held map. Every map has another one, in the order of their appearance.
func (d *drawing) mapColour(e *plans.Entry) string {
	i := d.maps[e.To.Digest()]
	if len(d.holds) <= fewSteps {
		return svg.Colour(i)
	}
	return svg.Shade(float64(i) / float64(len(d.holds)-1))
}
