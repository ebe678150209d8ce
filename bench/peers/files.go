package peers

import (
	"path/filepath"

	"lightpath/internal/files"
)

// Write writes the document into dir, which it creates: peers.json, peers.md and the pictures
// with their numbers. It returns the paths written, also with an error.
func (d *Document) Write(dir string) (paths []string, err error) {
	if err := d.Save(dir); err != nil {
		return nil, err
	}
	paths = append(paths, filepath.Join(dir, documentName))
	path := filepath.Join(dir, "peers.md")
	if err := files.Write(path, d.markdown(), 0o644); err != nil {
		return paths, err
	}
	paths = append(paths, path)
	for _, f := range d.figures() {
		more, err := f.Write(dir)
		paths = append(paths, more...)
		if err != nil {
			return paths, err
		}
	}
	return paths, nil
}
