package peers

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// Write writes the document into dir, which it creates: peers.json, peers.md and the pictures
// with their numbers. It returns the paths written, also with an error.
func (d *Document) Write(dir string) (paths []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name string
		data []byte
	}{{"peers.json", append(text, '\n')}, {"peers.md", d.Markdown()}} {
		path := filepath.Join(dir, f.name)
		if err := os.WriteFile(path, f.data, 0o644); err != nil {
			return paths, err
		}
		paths = append(paths, path)
	}
	for _, f := range d.figures() {
		more, err := f.Write(dir)
		paths = append(paths, more...)
		if err != nil {
			return paths, err
		}
	}
	return paths, nil
}
