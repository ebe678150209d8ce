package figure

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Panel is one part of a figure.
type Panel interface {
	// drawTo draws the panel into its canvas.
	drawTo(c draw.Canvas) error
}

// Axis describes an axis of a chart. The zero value is a linear axis with plain numbers.
type Axis struct {
	Label string // with the unit
	Log   bool
	// Name writes the value at a tick; nil: a number.
	Name func(float64) string
	// At has the values of the ticks; nil: decades or round numbers.
	At []float64
	// Min and Max fix the range if Max > Min.
	Min, Max float64
}

// Line is a series of a [Chart]. The chart omits points whose Y is not finite.
type Line struct {
	Name   string
	X, Y   []float64
	Dashed bool
	Faint  bool
	Colour int // index into the palette of lines
}

// Printed is a number that a paper prints, as a chart marks it.
type Printed struct {
	X, Y  float64
	Label string
}

// Chart is a panel of lines.
type Chart struct {
	Title   string
	X, Y    Axis
	Lines   []Line
	Printed []Printed
	Names   []Printed // labels at points, in ink
	// PrintedName is the name of the marks in the legend; default "printed".
	PrintedName string
	// Bars draws each line as bars beside those of the other lines. X are then 1, 2, ...: the groups of bars.
	Bars bool
}

// lineColours are colours that most people can distinguish, also on paper (after Okabe and Ito).
var lineColours = []color.RGBA{
	{0x00, 0x72, 0xB2, 255}, // blue
	{0xD5, 0x5E, 0x00, 255}, // vermilion
	{0x00, 0x9E, 0x73, 255}, // green
	{0xCC, 0x79, 0xA7, 255}, // purple
	{0xE6, 0x9F, 0x00, 255}, // orange
	{0x56, 0xB4, 0xE9, 255}, // sky
	{0x55, 0x55, 0x55, 255}, // grey
}

var (
	inkColour  = color.RGBA{0x22, 0x26, 0x2e, 255}
	softColour = color.RGBA{0x8a, 0x90, 0x9c, 255}
	gridColour = color.RGBA{0xe4, 0xe6, 0xea, 255}
	markColour = color.RGBA{0xb0, 0x12, 0x2a, 255}
)

// style is the one typeface of figures, at a size in points.
func style(size float64, c color.Color) text.Style {
	return text.Style{
		Color:   c,
		Font:    font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, vg.Length(size)),
		Handler: plot.DefaultTextHandler,
	}
}

// newPlot returns an empty plot in the style of figures.
func newPlot(title string, x, y Axis) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.TextStyle = style(11, inkColour)
	p.Title.TextStyle.XAlign, p.Title.TextStyle.YAlign = draw.XCenter, draw.YTop
	p.Title.Padding = 4
	for _, a := range []struct {
		to   *plot.Axis
		from Axis
		turn bool
	}{{&p.X, x, false}, {&p.Y, y, true}} {
		a.to.Label.Text = a.from.Label
		label, tick := style(9.5, inkColour), style(8, inkColour)
		label.XAlign, label.YAlign = draw.XCenter, draw.YBottom
		tick.XAlign, tick.YAlign = draw.XCenter, draw.YTop
		if a.turn {
			tick.XAlign, tick.YAlign = draw.XRight, draw.YCenter
		}
		a.to.Label.TextStyle, a.to.Tick.Label = label, tick
		a.to.Label.Padding = 3
		a.to.Color, a.to.Tick.Color = softColour, softColour
		a.to.Width, a.to.Tick.Width = 0.6, 0.6
		a.to.Tick.Length = 4
		name := naming(a.from.Name)
		a.to.Tick.Marker = round{name}
		if a.from.Log {
			a.to.Scale = plot.LogScale{}
			a.to.Tick.Marker = decades{name}
		}
		if a.from.At != nil {
			most := 8 // labels of given ticks
			if a.turn {
				most = 12
			}
			a.to.Tick.Marker = named{a.from.At, name, most}
		}
	}
	return p
}

func (c *Chart) drawTo(canvas draw.Canvas) error {
	p := newPlot(c.Title, c.X, c.Y)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = gridColour, gridColour
	grid.Horizontal.Width, grid.Vertical.Width = 0.5, 0.5
	p.Add(grid)
	for i, l := range c.Lines {
		add := func() error { return addLine(p, l, c.X.Log, c.Y.Log) }
		if c.Bars {
			add = func() error { return addBars(p, l, i, len(c.Lines)) }
		}
		if err := add(); err != nil {
			return fmt.Errorf("line %q: %w", l.Name, err)
		}
	}
	if err := c.addPrinted(p); err != nil {
		return err
	}
	if err := addNames(p, c.Names); err != nil {
		return err
	}
	fixRange(&p.X, c.X)
	fixRange(&p.Y, c.Y)
	p.Draw(canvas)
	return nil
}

func addLine(p *plot.Plot, l Line, logX, logY bool) error {
	var xys plotter.XYs
	for i := range l.X {
		x, y := l.X[i], l.Y[i]
		if math.IsNaN(y) || math.IsInf(y, 0) || logX && x <= 0 || logY && y <= 0 {
			continue
		}
		xys = append(xys, plotter.XY{X: x, Y: y})
	}
	if len(xys) == 0 {
		return nil
	}
	line, points, err := plotter.NewLinePoints(xys)
	if err != nil {
		return err
	}
	line.LineStyle, points.GlyphStyle = l.styles()
	p.Add(line, points)
	return nil
}

// addBars adds bar i of n of each group, in points of the page.
func addBars(p *plot.Plot, l Line, i, n int) error {
	width := 120 / vg.Length(max(1, n*len(l.Y)))
	bars, err := plotter.NewBarChart(plotter.Values(l.Y), width)
	if err != nil {
		return err
	}
	line, _ := l.styles()
	bars.XMin, bars.Color, bars.LineStyle.Width = 1, line.Color, 0
	bars.Offset = width * (vg.Length(i) - vg.Length(n-1)/2)
	p.Add(bars)
	return nil
}

// styles returns the styles of a line and of its points.
func (l Line) styles() (draw.LineStyle, draw.GlyphStyle) {
	colour := lineColours[l.Colour%len(lineColours)]
	width, radius := vg.Length(1.5), vg.Length(2.1)
	if l.Faint {
		colour.R, colour.G, colour.B = lighter(colour.R), lighter(colour.G), lighter(colour.B)
		width, radius = 1.1, 1.5
	}
	line := draw.LineStyle{Color: colour, Width: width}
	if l.Dashed {
		line.Dashes = []vg.Length{4, 3}
	}
	shape := []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}}[l.Colour%3]
	return line, draw.GlyphStyle{Color: colour, Radius: radius, Shape: shape}
}

// printedStyle marks the paper's numbers.
var printedStyle = draw.GlyphStyle{Color: markColour, Radius: 4, Shape: draw.CrossGlyph{}}

func lighter(v uint8) uint8 { return uint8((int(v) + 2*255) / 3) }

// addPrinted marks the paper's numbers by crosses with their labels.
func (c *Chart) addPrinted(p *plot.Plot) error {
	if len(c.Printed) == 0 {
		return nil
	}
	names, err := labelsOf(c.Printed, markColour, draw.XRight, vg.Point{X: -5, Y: 4})
	if err != nil {
		return err
	}
	crosses, err := plotter.NewScatter(names.XYs)
	if err != nil {
		return err
	}
	crosses.GlyphStyle = printedStyle
	p.Add(crosses, names)
	return nil
}

// addNames writes labels just above points.
func addNames(p *plot.Plot, names []Printed) error {
	if len(names) == 0 {
		return nil
	}
	labels, err := labelsOf(names, inkColour, draw.XCenter, vg.Point{Y: 5})
	if err != nil {
		return err
	}
	p.Add(labels)
	return nil
}

// labelsOf returns the labels of points, at an offset from them.
func labelsOf(all []Printed, c color.Color, align text.XAlignment, offset vg.Point) (*plotter.Labels, error) {
	l := plotter.XYLabels{XYs: make(plotter.XYs, len(all)), Labels: make([]string, len(all))}
	for i, m := range all {
		l.XYs[i], l.Labels[i] = plotter.XY{X: m.X, Y: m.Y}, m.Label
	}
	labels, err := plotter.NewLabels(l)
	if err != nil {
		return nil, err
	}
	for i := range labels.TextStyle {
		labels.TextStyle[i] = style(8, c)
		labels.TextStyle[i].XAlign = align
	}
	labels.Offset = offset
	return labels, nil
}

func fixRange(a *plot.Axis, from Axis) {
	if from.Max > from.Min {
		a.Min, a.Max = from.Min, from.Max
	}
	if from.Log && !(a.Min > 0) { // nothing to draw: keep the scale defined
		a.Min, a.Max = 1, 10
	}
	if a.Min == a.Max {
		a.Max++
	}
}
