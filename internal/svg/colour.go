package svg

import (
	"fmt"
	"math"
)

// palette holds the colours for a few kinds. Neighbours differ in hue and in lightness, and
// dark text is readable on all.
var palette = []string{
	"#8dbbe8", "#f2b56b", "#9ed29a", "#d9a3d6", "#f0e07a", "#7fd0c8",
	"#eb9c95", "#b3b3e6", "#c7da6f", "#e3bfa0", "#9fb8c9", "#f3b4cf",
}

// scale holds the colours for many kinds, where the order matters more than the difference.
var scale = [][3]float64{
	{0x7d, 0xa7, 0xe6}, {0x6f, 0xc8, 0xd6}, {0x86, 0xd0, 0x9a}, {0xc9, 0xdc, 0x6e},
	{0xf4, 0xd9, 0x6a}, {0xf4, 0xae, 0x6b}, {0xea, 0x8f, 0x92}, {0xd0, 0x9a, 0xdc},
}

// Colour returns the colour of kind i. Colours repeat after the last.
func Colour(i int) string {
	return palette[((i%len(palette))+len(palette))%len(palette)]
}

// Shade returns the colour at f, from 0 to 1, of the scale.
func Shade(f float64) string {
	f = math.Min(1, math.Max(0, f)) * float64(len(scale)-1)
	i := min(int(f), len(scale)-2)
	f -= float64(i)
	var c [3]int
	for k := range c {
		c[k] = int(math.Round(scale[i][k] + f*(scale[i+1][k]-scale[i][k])))
	}
	return fmt.Sprintf("#%02x%02x%02x", c[0], c[1], c[2])
}
