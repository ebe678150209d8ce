package figure

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// HeatMap is a panel of coloured cells, one for each pair of a value of X and one of Y.
// All cells have the same width, which suits geometric sequences.
type HeatMap struct {
	Title string
	X, Y  Axis        // Label and Name are used
	Xs    []float64   // of the columns
	Ys    []float64   // of the rows, from the bottom
	Z     [][]float64 // [row][column]; NaN: no value
	Scale Scale
	// Regions are the cells for which a paper prints a number. The map outlines them.
	Regions []Region
}

// Region is a rectangle of cells, by index and inclusive.
type Region struct {
	X0, X1, Y0, Y1 int
	Label          string
}

// Scale maps values to colours.
type Scale struct {
	Label    string // of the bar
	Min, Max float64
	Log      bool
	Reverse  bool // low values bright
	Name     func(float64) string
}

// viridis is sampled from the perceptually uniform map of that name (Smith and van der
// Walt, matplotlib), dark to bright.
var viridis = []color.RGBA{
	{0x44, 0x01, 0x54, 255}, {0x48, 0x28, 0x78, 255}, {0x3e, 0x4a, 0x89, 255}, {0x31, 0x68, 0x8e, 255},
	{0x26, 0x82, 0x8e, 255}, {0x1f, 0x9e, 0x89, 255}, {0x35, 0xb7, 0x79, 255}, {0x6d, 0xcd, 0x59, 255},
	{0xb4, 0xde, 0x2c, 255}, {0xfd, 0xe7, 0x25, 255},
}

// fraction returns the place of v on the scale, 0 to 1.
func (s Scale) fraction(v float64) float64 {
	low, high := s.Min, s.Max
	if s.Log {
		v, low, high = math.Log(v), math.Log(low), math.Log(high)
	}
	if !(high > low) {
		return 0
	}
	return math.Min(1, math.Max(0, (v-low)/(high-low)))
}

// at returns the value at fraction f of the scale.
func (s Scale) at(f float64) float64 {
	if s.Log {
		return s.Min * math.Pow(s.Max/s.Min, f)
	}
	return s.Min + f*(s.Max-s.Min)
}

// colour returns the colour of a value; white: it has no value.
func (s Scale) colour(v float64) color.RGBA {
	if math.IsNaN(v) {
		return color.RGBA{255, 255, 255, 255}
	}
	f := s.fraction(v)
	if s.Reverse {
		f = 1 - f
	}
	f *= float64(len(viridis) - 1)
	i := min(int(f), len(viridis)-2)
	f -= float64(i)
	mix := func(a, b uint8) uint8 { return uint8(math.Round(float64(a) + f*(float64(b)-float64(a)))) }
	a, b := viridis[i], viridis[i+1]
	return color.RGBA{mix(a.R, b.R), mix(a.G, b.G), mix(a.B, b.B), 255}
}

// on returns a colour for text on c.
func on(c color.RGBA) color.Color {
	if 0.299*float64(c.R)+0.587*float64(c.G)+0.114*float64(c.B) > 140 {
		return inkColour
	}
	return color.White
}

const barWidth = 58 // points, of the colour bar with its labels

func (h *HeatMap) drawTo(canvas draw.Canvas) error {
	index := func(a Axis, values []float64) Axis {
		name := naming(a.Name)
		at := make([]float64, len(values))
		for i := range at {
			at[i] = float64(i) + 1 // gonum compares ticks relatively, so a tick at 0 would be lost
		}
		a.At, a.Log = at, false
		a.Name = func(v float64) string { return name(values[int(v)-1]) }
		return a
	}
	p := newPlot(h.Title, index(h.X, h.Xs), index(h.Y, h.Ys))
	p.X.Tick.Label.Rotation = math.Pi / 4
	p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = draw.XRight, draw.YCenter
	p.Add(cells{h})
	p.X.Min, p.X.Max = 0.5, float64(len(h.Xs))+0.5
	p.Y.Min, p.Y.Max = 0.5, float64(len(h.Ys))+0.5
	p.X.Padding, p.Y.Padding = 0, 0
	main := draw.Crop(canvas, 0, -barWidth, 0, 0)
	p.Draw(main)
	inner := p.DataCanvas(main)
	h.drawBar(canvas, inner.Min.Y, inner.Max.Y)
	return nil
}

// drawBar draws the colour bar right of the cells.
func (h *HeatMap) drawBar(c draw.Canvas, bottom, top vg.Length) {
	const slices = 64
	left := c.Max.X - barWidth + 10
	height := (top - bottom) / slices
	for i := range slices {
		y := bottom + vg.Length(i)*height
		fill(c, h.Scale.colour(h.Scale.at((float64(i)+0.5)/slices)), left, left+9, y, y+height+0.4)
	}
	name := naming(h.Scale.Name)
	tick := style(7.5, inkColour)
	tick.YAlign = draw.YCenter
	for i := range 5 {
		f := float64(i) / 4
		c.FillText(tick, vg.Point{X: left + 12, Y: bottom + vg.Length(f)*(top-bottom)}, name(h.Scale.at(f)))
	}
	label := style(7.5, inkColour)
	label.XAlign, label.YAlign = draw.XRight, draw.YBottom
	c.FillText(label, vg.Point{X: c.Max.X - 2, Y: top + 5}, h.Scale.Label)
}

func fill(c draw.Canvas, col color.Color, x0, x1, y0, y1 vg.Length) {
	c.FillPolygon(col, []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}})
}

// cells draws the cells of a heat map, with their values if there is room.
type cells struct{ h *HeatMap }

// Plot implements plot.Plotter.
func (p cells) Plot(c draw.Canvas, plt *plot.Plot) {
	h := p.h
	x, y := plt.Transforms(&c)
	width, height := x(2)-x(1), y(2)-y(1)
	name := naming(h.Scale.Name)
	for r := range h.Ys {
		for i := range h.Xs {
			v := h.Z[r][i]
			col := h.Scale.colour(v)
			cx, cy := float64(i)+1, float64(r)+1
			fill(c, col, x(cx-0.5), x(cx+0.5)+0.3, y(cy-0.5), y(cy+0.5)+0.3)
			label := style(math.Min(8, float64(height)*0.55), on(col))
			label.XAlign, label.YAlign = draw.XCenter, draw.YCenter
			if s := name(v); !math.IsNaN(v) && label.Width(s) < width*0.95 && height > 8 {
				c.FillText(label, vg.Point{X: x(cx), Y: y(cy)}, s)
			}
		}
	}
	for _, g := range h.Regions {
		x0, x1 := x(float64(g.X0)+0.5), x(float64(g.X1)+1.5)
		y0, y1 := y(float64(g.Y0)+0.5), y(float64(g.Y1)+1.5)
		box := []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}, {X: x0, Y: y0}}
		c.StrokeLines(draw.LineStyle{Color: color.White, Width: 3}, box)
		c.StrokeLines(draw.LineStyle{Color: markColour, Width: 1.6}, box)
		drawRegionLabel(c, g.Label, x0, y0, y1)
	}
}

// drawRegionLabel writes a label on a plate at the top of a region, moved into the canvas.
func drawRegionLabel(c draw.Canvas, s string, x0, y0, y1 vg.Length) {
	if s == "" {
		return
	}
	label := style(8, color.White)
	label.XAlign, label.YAlign = draw.XLeft, draw.YBottom
	w := label.Width(s) + 6
	at := vg.Point{X: min(x0, c.Max.X-w), Y: y1}
	if at.Y+12 > c.Max.Y {
		at.Y = y0 - 12
	}
	if at.Y < c.Min.Y {
		at.Y = y1 - 12
	}
	fill(c, markColour, at.X, at.X+w, at.Y, at.Y+12)
	c.FillText(label, vg.Point{X: at.X + 3, Y: at.Y + 2.5}, s)
}

// greatest returns the greatest finite value of a map, 1 if there is none.
func greatest(m [][]float64) float64 {
	most := math.Inf(-1)
	for _, row := range m {
		for _, v := range row {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				most = math.Max(most, v)
			}
		}
	}
	if math.IsInf(most, -1) {
		return 1
	}
	return most
}
