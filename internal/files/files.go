package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/google/renameio/v2"
)

// Errors that callers tell apart; they come with the name of the file.
var (
	ErrTooLarge = errors.New("too large")
	ErrExposed  = errors.New("every user of this host may open it")
)

// maxSecret bounds files of passwords and keys.
const maxSecret = 1 << 16

// Read returns the content of the file at path. It reads at most limit bytes, also from a device
// or a FIFO, and fails with [ErrTooLarge] if there are more.
func Read(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadFrom(f, limit)
}

// ReadFrom is [Read] for an open file, such as standard input.
func ReadFrom(f *os.File, limit int64) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	tooLarge := fmt.Errorf("%s: %w: more than %d bytes", f.Name(), ErrTooLarge, limit)
	if info.Mode().IsRegular() && info.Size() > limit {
		return nil, tooLarge
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, tooLarge
	}
	return data, err
}

// ReadSecret returns the content of a file of a password or a private key. It fails with
// [ErrExposed] if users beside the owner and the group may open the file.
func ReadSecret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if perm := info.Mode().Perm(); perm&0o007 != 0 {
		return nil, fmt.Errorf("%s has permissions %#o: %w; chmod o= %s", path, perm, ErrExposed, path)
	}
	return ReadFrom(f, maxSecret)
}

// Write makes data the content of the file at path. A regular file is replaced atomically and
// durably: readers and a crash find the old content or the new. An existing file keeps its
// permissions, its owner and the links to it, a new one gets perm less the umask. A device, a
// FIFO, or a standard stream of this process is written to and stays what it is.
func Write(path string, data []byte, perm fs.FileMode) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		info = nil
	case err != nil:
		return err
	default:
		for _, stream := range []*os.File{os.Stdout, os.Stderr} {
			if own, err := stream.Stat(); err == nil && os.SameFile(own, info) {
				_, err = stream.Write(data)
				return err
			}
		}
		if !info.Mode().IsRegular() {
			return writeSpecial(path, data)
		}
	}
	if path, err = target(path); err != nil {
		return err
	}
	return replace(path, info, data, perm)
}

// CheckWrite returns the error that [Write] would return for a directory, a missing folder or missing permissions. Call
// it before long work whose result goes to path. It changes nothing.
func CheckWrite(path string) error {
	path, err := target(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := syscall.Access(filepath.Dir(path), writeAndSearch); err != nil {
			return &fs.PathError{Op: "open", Path: path, Err: err}
		}
		return nil
	case err != nil:
		return err
	case !info.IsDir() && !info.Mode().IsRegular():
		return nil // to open a FIFO waits for its reader
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// writeAndSearch is the right to make a file in a directory: W_OK and X_OK of access(2).
const writeAndSearch = 0o3

func writeSpecial(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// target follows the links at path to the file that is to be written, which may not exist yet.
func target(path string) (string, error) {
	const most = 40 // as in Linux
	for range most {
		link, err := os.Readlink(path)
		if err != nil {
			return path, nil // no link; another error shows when the file is written
		}
		if !filepath.IsAbs(link) {
			// Join would resolve ".." by the name of a directory that may itself be a link.
			dir, _ := filepath.Split(path)
			link = dir + link
		}
		path = link
	}
	return "", &fs.PathError{Op: "write", Path: path, Err: syscall.ELOOP}
}

// replace renames a new file to path, which is no link. info describes the old file, nil if there
// is none.
func replace(path string, info fs.FileInfo, data []byte, perm fs.FileMode) error {
	err := renameNew(path, info, data, perm)
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		pathErr.Path = path // not the name of the temporary file
	}
	return err
}

func renameNew(path string, info fs.FileInfo, data []byte, perm fs.FileMode) error {
	if info != nil {
		// The directory alone decides about a rename. The file's own permissions count too.
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		f.Close()
	}
	dir := filepath.Dir(path)
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(dir),
		renameio.WithPermissions(perm), renameio.WithExistingPermissions())
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }() // nothing is left to remove once it has replaced the old file
	if info != nil {
		// Only root may give a file away. A member of its group may keep the group.
		if old := info.Sys().(*syscall.Stat_t); f.Chown(int(old.Uid), int(old.Gid)) != nil {
			_ = f.Chown(-1, int(old.Gid))
		}
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return err
	}
	// The content is in place. Not every file system can make the directory durable as well.
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		d.Close()
	}
	return nil
}
