package figure

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"lightpath/internal/files"
)

// Figure is one figure: the panels to draw, their numbers, and the printed numbers beside ours.
type Figure struct {
	Paper, Name string // "swot", "8": the stem of its files
	Title       string
	Columns     int // panels side by side
	Panels      []Panel
	Table       Table   // every point drawn, in long form
	Claims      []Claim // in the order of the paper
	Notes       []string
	// Facts are further fields of the JSON, such as the machine of a measurement.
	Facts map[string]any
}

// Claim is a number that a paper prints, beside the number computed here.
type Claim struct {
	ID      string  // of the experiment, such as "S3"
	What    string  // which number
	Printed float64 // as in the paper
	Ours    float64 // NaN if there is no number to compare
	Unit    string  // "%" or "x"
	Note    string  // why they differ; "": they agree
}

// Table is a rectangle of text with named columns.
type Table struct {
	Columns []string
	Rows    [][]string
}

// Add appends a row; numbers are written with seven significant digits.
func (t *Table) Add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		switch v := c.(type) {
		case float64:
			row[i] = number(v, 7)
		default:
			row[i] = fmt.Sprint(v)
		}
	}
	t.Rows = append(t.Rows, row)
}

// CSV returns the table as RFC 4180 text with a header.
func (t *Table) CSV() []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	// A bytes.Buffer does not fail.
	_ = w.Write(t.Columns)
	_ = w.WriteAll(t.Rows)
	return b.Bytes()
}

// Transposed returns the table with a row for each column: a table of many columns and few rows fits a terminal.
func (t *Table) Transposed() Table {
	var across Table
	for c, name := range t.Columns {
		row := []string{name}
		for _, r := range t.Rows {
			row = append(row, r[c])
		}
		across.Rows = append(across.Rows, row)
	}
	across.Columns, across.Rows = across.Rows[0], across.Rows[1:]
	return across
}

// Text returns the table in columns of equal width, for a terminal.
func (t *Table) Text() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for _, row := range append([][]string{t.Columns}, t.Rows...) {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // a strings.Builder does not fail
	return b.String()
}

// printed returns the claims as a table.
func (f *Figure) printed() Table {
	t := Table{Columns: []string{"id", "what", "unit", "printed", "ours", "note"}}
	for _, c := range f.Claims {
		t.Add(c.ID, c.What, c.Unit, c.Printed, c.Ours, c.Note)
	}
	return t
}

// JSON returns everything except the picture. A missing number is null.
func (f *Figure) JSON() ([]byte, error) {
	printed := f.printed()
	all := map[string]any{
		"paper": f.Paper, "figure": f.Name, "title": f.Title, "notes": f.Notes,
		"columns": f.Table.Columns, "rows": f.Table.values(),
		"printed": map[string]any{"columns": printed.Columns, "rows": printed.values()},
	}
	maps.Copy(all, f.Facts)
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return nil, fmt.Errorf("figure: %w", err)
	}
	return append(text, '\n'), nil
}

// values returns the cells: a number, a text, or nil for an empty cell.
func (t *Table) values() [][]any {
	rows := make([][]any, len(t.Rows))
	for r, row := range t.Rows {
		rows[r] = make([]any, len(row))
		for c, cell := range row {
			if v, err := strconv.ParseFloat(cell, 64); err == nil && !math.IsNaN(v) && !math.IsInf(v, 0) {
				rows[r][c] = v
			} else if cell != "" {
				rows[r][c] = cell
			}
		}
	}
	return rows
}

// Write writes the figure into dir, which it creates. The files are STEM.csv and STEM.json; STEM-printed.csv if the
// paper prints numbers; STEM.svg and STEM.png if there are panels. STEM is paper-name. Write returns the written paths,
// also with an error.
func (f *Figure) Write(dir string) (paths []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("figure: %w", err)
	}
	stem := filepath.Join(dir, f.Paper+"-"+f.Name)
	put := func(suffix string, data []byte) error {
		if err := files.Write(stem+suffix, data, 0o644); err != nil {
			return fmt.Errorf("figure: %w", err)
		}
		paths = append(paths, stem+suffix)
		return nil
	}
	if err := put(".csv", f.Table.CSV()); err != nil {
		return paths, err
	}
	if len(f.Claims) > 0 {
		printed := f.printed()
		if err := put("-printed.csv", printed.CSV()); err != nil {
			return paths, err
		}
	}
	formats := []struct {
		suffix string
		encode func() ([]byte, error)
	}{{".json", f.JSON}, {".svg", f.SVG}, {".png", f.png}}
	if len(f.Panels) == 0 {
		formats = formats[:1]
	}
	for _, format := range formats {
		data, err := format.encode()
		if err != nil {
			return paths, fmt.Errorf("figure: %s%s: %w", stem, format.suffix, err)
		}
		if err := put(format.suffix, data); err != nil {
			return paths, err
		}
	}
	return paths, nil
}

// number writes v with the given significant digits. It returns "" if v is not finite.
func number(v float64, digits int) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', digits, 64)
}
