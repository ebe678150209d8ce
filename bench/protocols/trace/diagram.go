package trace

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"lightpath/internal/brief"
	"lightpath/internal/svg"
)

// Dimensions of a diagram, in pixels.
const (
	diagramMargin = 16.0
	diagramTime   = 96.0 // width of the column of times
	diagramRow    = 22.0 // the least distance of two lines
	diagramGap    = 3.0  // the longest time between two lines, in rows; longer times are marked
	diagramText   = 11.0 // size of text
	diagramLine   = 14.0 // height of a line of text
	diagramWrap   = 44   // characters of a line of text in a box
	diagramNames  = 40   // rows after which the names of the actors stand again
)

// Diagram draws the end of a trace as a sequence diagram in SVG. It leaves out the lines on which the violation cannot
// depend. Of the rest it draws at most the last "most" lines. A sentence in the picture counts the omitted lines.
func (t *Trace) Diagram(most int) []byte {
	lines := slices.Clone(t.Lines)
	slices.SortStableFunc(lines, func(a, b Line) int { return cmp.Compare(a.At, b.At) })
	all := len(lines)
	lines = causes(lines)
	unrelated := all - len(lines)
	earlier := max(len(lines)-most, 0)
	d := diagram{lines: lines[earlier:]}
	var violation string
	if n := len(d.lines); n > 0 && d.lines[n-1].Kind == Violation {
		violation = d.lines[n-1].Text
	}
	d.place()
	c := &d.canvas
	c.Text(diagramMargin, 20, 13, "start", svg.Ink, "End of a simulated run: "+brief.Count(len(d.lines), "line"))
	c.Text(diagramMargin, 36, diagramText, "start", svg.Faint, leftOut(earlier, unrelated))
	c.Text(diagramMargin, 52, diagramText, "start", svg.Faint,
		"Arrows: messages. Boxes: own steps. Red: injected faults. The time axis is not to scale; // marks long gaps.")
	d.draw()
	h := d.bottom + diagramMargin
	if violation != "" {
		h = d.verdict(violation)
	}
	return []byte(c.Picture(d.width, h))
}

// leftOut returns the sentence that counts the omitted lines.
func leftOut(earlier, unrelated int) string {
	var parts []string
	if earlier > 0 {
		parts = append(parts, brief.Count(earlier, "earlier line"))
	}
	if unrelated > 0 {
		parts = append(parts, brief.Count(unrelated, "line")+" on which the violation cannot depend")
	}
	if parts == nil {
		return "No line is left out."
	}
	return "Left out: " + strings.Join(parts, ", ") + "."
}

// actor returns the actor of a line that is not a message, "" for a line about the whole world.
func (l *Line) actor() string { return cmp.Or(l.To, l.From) }

// isArrow reports whether a line connects two actors.
func (l *Line) isArrow() bool { return l.From != "" && l.To != "" && l.From != l.To }

// causes returns the lines on which the last line can depend, in their order: steps of its actor, messages to it, and
// what their senders did before they sent them. Faults stay. All lines stay unless the last is a violation by an actor.
func causes(lines []Line) []Line {
	if len(lines) == 0 || lines[len(lines)-1].Kind != Violation || lines[len(lines)-1].actor() == "" {
		return lines
	}
	last := &lines[len(lines)-1]
	until := map[string]time.Duration{last.From: last.At, last.To: last.At} // what an actor did until then matters
	kept := make([]Line, 0, len(lines))
	for i := len(lines) - 1; i >= 0; i-- {
		l := lines[i]
		u, known := until[l.actor()]
		if l.Kind != Fault && l.actor() != "" && (!known || l.At > u) {
			continue
		}
		kept = append(kept, l)
		if l.isArrow() {
			until[l.From] = max(until[l.From], l.Sent)
		}
	}
	slices.Reverse(kept)
	return kept
}

// diagram is a picture while it is drawn.
type diagram struct {
	canvas svg.Canvas
	lines  []Line
	actors []string
	x      map[string]float64 // of the lifelines
	y      []float64          // of each line: where its message arrives, or the middle of its box
	end    []float64          // of each line: the lower end of its text
	text   [][]string         // of each line, wrapped
	gap    []bool             // before the line, time is not to scale

	nameRows []float64 // where the names of the actors stand again

	width, top, bottom float64
}

// place decides where the lifelines and the lines are.
func (d *diagram) place() {
	seen := map[string]bool{"": true}
	widest := 0.0
	for i := range d.lines {
		for _, a := range []string{d.lines[i].From, d.lines[i].To} {
			if !seen[a] {
				seen[a] = true
				d.actors = append(d.actors, a)
				widest = max(widest, svg.TextWidth(a, diagramText))
			}
		}
	}
	slices.SortFunc(d.actors, compareActors)
	spacing := max(110, widest+20)
	d.x = make(map[string]float64, len(d.actors))
	left := diagramMargin + diagramTime + spacing/2
	for i, a := range d.actors {
		d.x[a] = left + float64(i)*spacing
	}
	d.width = max(left+float64(len(d.actors)-1)*spacing+spacing/2+diagramMargin, 760)
	d.top = 92
	d.rows()
}

// rows gives each line a row of its own, so that the texts of two lines cannot overlap. Rows are as far apart as time
// demands, within limits.
func (d *diagram) rows() {
	var gaps []time.Duration
	for i := 1; i < len(d.lines); i++ {
		if dt := d.lines[i].At - d.lines[i-1].At; dt > 0 {
			gaps = append(gaps, dt)
		}
	}
	slices.Sort(gaps)
	perRow := time.Duration(1) // the median gap is a row
	if len(gaps) > 0 {
		perRow = gaps[len(gaps)/2]
	}
	y := d.top
	half := 0.0 // height of the line before, below its y
	for i := range d.lines {
		l := &d.lines[i]
		text := wrapText(l.Text, diagramWrap)
		switch {
		case l.Kind == Violation:
			text = []string{"violation"}
		case l.actor() == "":
			text = wrapText(l.Text, charactersIn(d.inner(), diagramText))
		}
		rows := 0.0
		if i > 0 {
			rows = float64(l.At-d.lines[i-1].At) / float64(perRow)
		}
		height := float64(len(text))*diagramLine + 4
		above, below := height/2+4, height/2 // a box
		if l.isArrow() {
			above, below = 20, height // its text stands below the arrow, which comes from above
		}
		y += max(half+above, min(rows, diagramGap)*diagramRow)
		if i > 0 && i%diagramNames == 0 {
			y += diagramRow
			d.nameRows = append(d.nameRows, y-above-diagramRow/2)
		}
		half = below
		d.y = append(d.y, y)
		d.end = append(d.end, y+below)
		d.text = append(d.text, text)
		d.gap = append(d.gap, rows > diagramGap)
	}
	d.bottom = y + half + 8
}

// sentAt returns where the message of line i begins: at the last line of its sender until it was sent, or else in
// proportion between the lines before and after that moment. A message from before the picture begins at its top.
func (d *diagram) sentAt(i int) float64 {
	l := &d.lines[i]
	before := -1 // the last line until then
	for k := i - 1; k >= 0; k-- {
		at := d.lines[k].At
		if at == l.Sent && d.lines[k].actor() == l.From {
			return d.end[k]
		}
		if at <= l.Sent && before < 0 {
			before = k
		}
		if at < l.Sent {
			break
		}
	}
	if before < 0 {
		if i > 0 && l.Sent < d.lines[0].At {
			return d.top
		}
		return d.y[i]
	}
	after := before + 1
	from, to := d.lines[before].At, d.lines[after].At
	if to == from {
		return d.end[before]
	}
	share := min(1, float64(l.Sent-from)/float64(to-from))
	return d.end[before] + share*(d.y[after]-d.end[before])
}

// draw draws lifelines, then arrows, then boxes and texts, so that texts stay readable.
func (d *diagram) draw() {
	c := &d.canvas
	for _, a := range d.actors {
		c.Line(d.x[a], d.top-8, d.x[a], d.bottom, fmt.Sprintf(`stroke="%s" stroke-width="1.5"`, svg.Grid))
	}
	for i := range d.lines {
		if d.lines[i].isArrow() {
			d.arrow(i)
		}
	}
	for _, y := range append([]float64{d.top - 20}, d.nameRows...) {
		d.names(y)
	}
	for i := range d.lines {
		d.moment(i)
		if d.lines[i].isArrow() {
			d.label(i)
		} else {
			d.box(i)
		}
	}
}

// names writes the names of the actors.
func (d *diagram) names(y float64) {
	for _, a := range d.actors {
		w := svg.TextWidth(a, diagramText) + 8
		d.canvas.Rect(d.x[a]-w/2, y-9, w, 18, fmt.Sprintf(`rx="3" fill="%s" stroke="%s"`, colourOf(a), svg.Faint), "")
		d.canvas.Text(d.x[a], y+4, diagramText, "middle", svg.Ink, a)
	}
}

// moment writes the time of line i if it differs from that of the line before.
func (d *diagram) moment(i int) {
	if i > 0 && d.lines[i].At == d.lines[i-1].At {
		return
	}
	const right = diagramMargin + diagramTime - 8
	d.canvas.Text(right, d.y[i]+4, diagramText, "end", svg.Faint, d.lines[i].At.Round(time.Microsecond).String())
	if d.gap[i] {
		d.canvas.Text(right, d.y[i]-diagramRow, diagramText, "end", svg.Faint, "//")
	}
}

// inkOf returns the colour of a line.
func inkOf(k Kind) string {
	if k == Fault || k == Violation {
		return svg.Late
	}
	return svg.Ink
}

// arrow draws the message of line i, dashed for a fault that hits it.
func (d *diagram) arrow(i int) {
	l := &d.lines[i]
	x1, y1, x2, y2 := d.x[l.From], d.sentAt(i), d.x[l.To], d.y[i]
	stroke := fmt.Sprintf(`stroke="%s" stroke-width="1.2"`, inkOf(l.Kind))
	if l.Kind == Fault {
		stroke += ` stroke-dasharray="5 3"`
	}
	d.canvas.Line(x1, y1, x2, y2, stroke)
	back := -9.0
	if x2 < x1 {
		back = 9
	}
	slope := (y2 - y1) / (x2 - x1)
	d.canvas.Path(fmt.Sprintf("M%.2f %.2fL%.2f %.2fL%.2f %.2fz", x2, y2, x2+back, y2+slope*back-3.5,
		x2+back, y2+slope*back+3.5), fmt.Sprintf(`fill="%s"`, inkOf(l.Kind)), "")
}

// label writes the text of an arrow below its head, on the sender's side.
func (d *diagram) label(i int) {
	l, lines := &d.lines[i], d.text[i]
	w := widthOf(lines)
	x := d.x[l.To] - 12 - w // the left end
	if d.x[l.From] > d.x[l.To] {
		x = d.x[l.To] + 12
	}
	x, y := d.inside(x, w), d.y[i]+3
	d.canvas.Rect(x-2, y, w+4, diagramLine*float64(len(lines)), `fill="white" fill-opacity="0.85"`, title(l))
	for k, s := range lines {
		d.canvas.Text(x, y+diagramLine*(float64(k)+0.8), diagramText, "start", inkOf(l.Kind), s)
	}
}

// box draws an own step, a fault or a violation at its actor. One without an actor is as wide as the picture.
func (d *diagram) box(i int) {
	l, lines := &d.lines[i], d.text[i]
	w, h := widthOf(lines)+12, diagramLine*float64(len(lines))+4
	at, ok := d.x[l.actor()]
	if !ok {
		w = d.inner()
	}
	x := d.inside(at-w/2, w)
	fill, stroke := svg.Track, svg.Faint
	if l.Kind != Internal {
		fill, stroke = "#fbe4e2", svg.Late
	}
	d.canvas.Rect(x, d.y[i]-h/2, w, h, fmt.Sprintf(`rx="2" fill="%s" stroke="%s"`, fill, stroke), title(l))
	for k, s := range lines {
		d.canvas.Text(x+w/2, d.y[i]-h/2+2+diagramLine*(float64(k)+0.78), diagramText, "middle", inkOf(l.Kind), s)
	}
}

// inner returns the width right of the times.
func (d *diagram) inner() float64 { return d.width - diagramTime - 2*diagramMargin }

// inside returns the left end nearest to x of something of width w that does not leave the picture.
func (d *diagram) inside(x, w float64) float64 {
	return max(min(x, d.width-diagramMargin-w), diagramMargin+diagramTime)
}

// verdict writes the whole text of the violation below the lines, and returns the height of the picture.
func (d *diagram) verdict(violation string) float64 {
	const size = 12.0
	inner := d.width - 2*diagramMargin - 24
	lines := wrapText(violation, charactersIn(inner, size))
	h := 18*float64(len(lines)+1) + 12
	c := &d.canvas
	c.Rect(diagramMargin, d.bottom+8, d.width-2*diagramMargin, h,
		fmt.Sprintf(`rx="3" fill="#fbe4e2" stroke="%s" stroke-width="2"`, svg.Late), "")
	c.Text(diagramMargin+12, d.bottom+28, size, "start", svg.Late, "Violation")
	for k, s := range lines {
		c.Text(diagramMargin+12, d.bottom+28+18*float64(k+1), size, "start", svg.Ink, s)
	}
	return d.bottom + 8 + h + diagramMargin
}

// title is the text that viewers show for a line.
func title(l *Line) string {
	if l.isArrow() {
		return fmt.Sprintf("%s to %s, sent %v, received %v: %s", l.From, l.To, l.Sent, l.At, l.Text)
	}
	return strings.TrimSpace(fmt.Sprintf("%s, %v: %s", l.actor(), l.At, l.Text))
}

func widthOf(lines []string) float64 {
	w := 0.0
	for _, s := range lines {
		w = max(w, svg.TextWidth(s, diagramText))
	}
	return w
}

// charactersIn returns how many characters surely fit into w pixels.
func charactersIn(w, size float64) int { return int(w / svg.TextWidth("x", size)) }

// wrapText breaks s into lines of at most width characters, between words if it can.
func wrapText(s string, width int) []string {
	var lines []string
	var line []rune
	for word := range strings.FieldsSeq(s) {
		w := []rune(word)
		if len(line) > 0 && len(line)+1+len(w) > width {
			lines, line = append(lines, string(line)), nil
		}
		if len(line) > 0 {
			line = append(line, ' ')
		}
		for line = append(line, w...); len(line) > width; line = line[width:] {
			lines = append(lines, string(line[:width]))
		}
	}
	return append(lines, string(line))
}

// kindsOfActors are the first words of actors, in the order of their lifelines. Others come last.
var kindsOfActors = []string{"operator", "etcd", "controller", "plane", "job"}

func kindOfActor(a string) int {
	for i, k := range kindsOfActors {
		if strings.HasPrefix(a, k) {
			return i
		}
	}
	return len(kindsOfActors)
}

func colourOf(actor string) string { return svg.Colour(kindOfActor(actor)) }

var numbers = regexp.MustCompile(`\d+`)

// compareActors orders actors by kind, and those of a kind by their numbers.
func compareActors(a, b string) int {
	values := func(s string) (list []int) {
		for _, digits := range numbers.FindAllString(s, -1) {
			n, _ := strconv.Atoi(digits) // one that is too long is the greatest
			list = append(list, n)
		}
		return list
	}
	return cmp.Or(cmp.Compare(kindOfActor(a), kindOfActor(b)), slices.Compare(values(a), values(b)), strings.Compare(a, b))
}
