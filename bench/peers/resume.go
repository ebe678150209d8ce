package peers

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"lightpath/internal/decode"
	"lightpath/internal/files"
)

// documentName is the document's file in its directory.
const documentName = "peers.json"

// Read reads the document that a run has left in dir; nil: there is none.
func Read(dir string) (*Document, error) {
	path := filepath.Join(dir, documentName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	d := new(Document)
	if err := decode.StrictJSON(text, d); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, p := range d.Points { // an earlier version may have summarized the samples differently
		p.judge()
	}
	return d, nil
}

// Save writes only peers.json. It replaces the file atomically.
func (d *Document) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return err
	}
	return files.Write(filepath.Join(dir, documentName), append(text, '\n'), 0o644)
}

// goOn takes over the points of an earlier run, which must have had the same options.
func (d *Document) goOn(before *Document) error {
	if before == nil {
		return nil
	}
	if before.Cores != d.Cores || before.Rounds != d.Rounds {
		return fmt.Errorf("peers: what is there was measured with %d rounds on %d cores, not with %d on %d", before.Rounds,
			before.Cores, d.Rounds, d.Cores)
	}
	if before.LibraryMemory != d.LibraryMemory {
		return fmt.Errorf("peers: what is there was measured with other buffers: of the libraries %v, not %v",
			before.LibraryMemory, d.LibraryMemory)
	}
	if before.HostPlanes != d.HostPlanes {
		return fmt.Errorf("peers: what is there was measured over %d planes between hosts, not over %d (0: on one host)",
			before.HostPlanes, d.HostPlanes)
	}
	d.Points, d.Libraries, d.Failures = before.Points, before.Libraries, before.Failures
	return nil
}

// has reports whether a point has been measured.
func (d *Document) has(want *Point) bool {
	return slices.ContainsFunc(d.Points, func(p *Point) bool { return p.compare(want) == 0 })
}

// sort brings points that several runs have measured into one order.
func (d *Document) sort() { slices.SortStableFunc(d.Points, (*Point).compare) }

func (p *Point) compare(o *Point) int {
	return cmp.Or(cmp.Compare(p.Transport, o.Transport), cmp.Compare(p.Ranks, o.Ranks),
		cmp.Compare(p.Collective, o.Collective),
		cmp.Compare(p.Type, o.Type), cmp.Compare(p.Op, o.Op), cmp.Compare(p.Bytes, o.Bytes))
}
