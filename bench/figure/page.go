package figure

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The page, in points.
const (
	panelWidth  = 330.0
	panelHeight = 250.0
	pageMargin  = 12.0
	titleLine   = 17.0
	noteLine    = 12.0
	legendLine  = 15.0
	pngDPI      = 144
)

// SVG returns the picture as SVG.
func (f *Figure) SVG() ([]byte, error) {
	w, h := f.size()
	c := vgsvg.New(w, h)
	if err := f.drawTo(draw.NewCanvas(c, w, h)); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err := c.WriteTo(&b)
	return b.Bytes(), err
}

// png returns the picture as PNG at 144 dots per inch.
func (f *Figure) png() ([]byte, error) {
	w, h := f.size()
	c := vgimg.NewWith(vgimg.UseWH(w, h), vgimg.UseDPI(pngDPI), vgimg.UseBackgroundColor(color.White))
	if err := f.drawTo(draw.NewCanvas(c, w, h)); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err := vgimg.PngCanvas{Canvas: c}.WriteTo(&b)
	return b.Bytes(), err
}

// legendItem explains a line, or the cross of the printed numbers.
type legendItem struct {
	name    string
	line    *Line
	x       vg.Length
	printed bool
}

// legend lists the names in the charts of a figure, each once, in lines of the given width. It stands above the panels,
// so it hides no line.
func (f *Figure) legend(width vg.Length) [][]legendItem {
	var items []legendItem
	seen := map[string]bool{}
	add := func(it legendItem) {
		if it.name != "" && !seen[it.name] {
			seen[it.name] = true
			items = append(items, it)
		}
	}
	for _, p := range f.Panels {
		c, ok := p.(*Chart)
		if !ok {
			continue
		}
		for i := range c.Lines {
			add(legendItem{name: c.Lines[i].Name, line: &c.Lines[i]})
		}
		if len(c.Printed) > 0 {
			name := c.PrintedName
			if name == "" {
				name = "printed in the paper"
			}
			add(legendItem{name: name, printed: true})
		}
	}
	st := style(9, inkColour)
	var lines [][]legendItem
	x := width + 1
	for _, it := range items {
		w := st.Width(it.name) + 44
		if x+w > width {
			lines, x = append(lines, nil), 0
		}
		it.x = x
		lines[len(lines)-1] = append(lines[len(lines)-1], it)
		x += w
	}
	return lines
}

func drawLegend(c draw.Canvas, lines [][]legendItem, top vg.Length) {
	st := style(9, inkColour)
	st.YAlign = draw.YCenter
	for i, line := range lines {
		y := top - legendLine*(vg.Length(i)+0.5)
		for _, it := range line {
			left := pageMargin + it.x
			mid := vg.Point{X: left + 12, Y: y}
			if it.printed {
				c.DrawGlyph(printedStyle, mid)
			} else {
				stroke, glyph := it.line.styles()
				c.StrokeLine2(stroke, left, y, left+24, y)
				c.DrawGlyph(glyph, mid)
			}
			c.FillText(st, vg.Point{X: left + 29, Y: y}, it.name)
		}
	}
}

// titleHeight is the height of the title with the margin above it.
func (f *Figure) titleHeight(width vg.Length) float64 {
	return pageMargin + titleLine*float64(len(wrap(f.Title, style(13, inkColour), width)))
}

func (f *Figure) columns() int { return max(1, min(f.Columns, len(f.Panels))) }

func (f *Figure) size() (w, h vg.Length) {
	cols := f.columns()
	rows := (len(f.Panels) + cols - 1) / cols
	width := 2*pageMargin + float64(cols)*panelWidth
	inner := vg.Length(width - 2*pageMargin)
	lines, legend := len(f.footer(inner)), len(f.legend(inner))
	height := f.titleHeight(inner) + float64(legend)*legendLine + float64(rows)*panelHeight + float64(lines)*noteLine +
		2*pageMargin
	return vg.Length(width), vg.Length(height)
}

func (f *Figure) drawTo(c draw.Canvas) error {
	fill(c, color.White, c.Min.X, c.Max.X, c.Min.Y, c.Max.Y)
	title := style(13, inkColour)
	title.XAlign, title.YAlign = draw.XLeft, draw.YTop
	inner := c.Max.X - c.Min.X - 2*pageMargin
	for i, line := range wrap(f.Title, title, inner) {
		c.FillText(title, vg.Point{X: pageMargin, Y: c.Max.Y - pageMargin - titleLine*vg.Length(i)}, line)
	}
	top := c.Max.Y - vg.Length(f.titleHeight(inner))
	cols := f.columns()
	legend := f.legend(inner)
	drawLegend(c, legend, top)
	panels := top - pageMargin/2 - legendLine*vg.Length(len(legend))
	for i, p := range f.Panels {
		left := vg.Length(pageMargin + panelWidth*float64(i%cols))
		top := panels - vg.Length(panelHeight*float64(i/cols))
		cell := draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: left + 6, Y: top - panelHeight + 8},
			Max: vg.Point{X: left + panelWidth - 8, Y: top - 4},
		}}
		if err := p.drawTo(cell); err != nil {
			return fmt.Errorf("panel %d: %w", i, err)
		}
	}
	note := style(8.5, inkColour)
	note.XAlign, note.YAlign = draw.XLeft, draw.YBottom
	lines := f.footer(inner)
	for i, line := range lines {
		y := vg.Length(pageMargin/2) + vg.Length(float64(len(lines)-1-i)*noteLine)
		c.FillText(note, vg.Point{X: pageMargin, Y: y}, line)
	}
	return nil
}

// footer returns the text below the panels: the printed numbers beside ours, then the notes.
func (f *Figure) footer(width vg.Length) []string {
	var lines []string
	for _, c := range f.Claims {
		lines = append(lines, wrap(c.String(), style(8.5, inkColour), width)...)
	}
	for _, n := range f.Notes {
		lines = append(lines, wrap(n, style(8.5, inkColour), width)...)
	}
	return lines
}

// String returns the claim as one line: What, Printed, Ours, and the note. It omits the ID, which only readers of the
// tables can look up.
func (c Claim) String() string {
	ours := "none"
	if !math.IsNaN(c.Ours) {
		ours = number(c.Ours, 4) + unitText(c.Unit)
	}
	s := fmt.Sprintf("%s: printed %s, ours %s", c.What, number(c.Printed, 4)+unitText(c.Unit), ours)
	if c.Note != "" {
		s += " (" + c.Note + ")"
	}
	return s
}

func unitText(unit string) string {
	if unit == "%" {
		return " %"
	}
	return unit
}

// wrap breaks s into lines of at most width; continuations are indented.
func wrap(s string, st text.Style, width vg.Length) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		next := word
		if line != "" {
			next = line + " " + word
		}
		if line != "" && st.Width(next) > width {
			lines = append(lines, line)
			next = "      " + word
		}
		line = next
	}
	return append(lines, line)
}
