package peer

import (
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"lightpath/shim/device"
	"lightpath/shim/device/pieces"
	"lightpath/shim/errdefs"
)

// offers are the regions whose pieces peers may ask for.
type offers struct {
	mu     sync.Mutex     // held while pieces are exported: they stay retained
	server *pieces.Server // nil until the first mapped region
	of     map[uint64][]piece
}

// exportPieces makes a region of memory that the program has mapped: pieces one behind the other. Its first piece is
// set.
func (x *Path) exportPieces(r *region) error {
	end := r.at + r.size
	for i := 0; ; i++ {
		p := &r.pieces[i]
		handle, err := x.driver.RetainPiece(*(*unsafe.Pointer)(unsafe.Pointer(&p.base)))
		if err != nil {
			return err
		}
		p.handle = handle
		fd, err := x.driver.ExportPiece(handle)
		if err != nil {
			return err
		}
		_ = unix.Close(fd) // it can be exported: peers get descriptors when they ask
		if p.base+p.size >= end {
			r.mapped = true
			return nil
		}
		if i+1 == pieces.Max {
			return fmt.Errorf("it has more than %d pieces: %w", pieces.Max, errdefs.ErrInvalidArgument)
		}
		next := p.base + p.size
		id := x.numberAt(next)
		base, size, err := x.driver.Allocation(*(*unsafe.Pointer)(unsafe.Pointer(&next)))
		if err != nil {
			return err
		}
		if uintptr(base) != next || id == 0 {
			return fmt.Errorf("it has a gap at %#x: %w", next, errdefs.ErrInvalidArgument)
		}
		r.pieces = append(r.pieces, piece{base: next, size: uintptr(size), id: id})
	}
}

// offerPieces lets peers ask for the pieces of a region.
func (x *Path) offerPieces(serial uint64, of []piece) error {
	o := &x.published.offers
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.server == nil {
		s, name, err := pieces.Serve(x.descriptors)
		if err != nil {
			return err
		}
		copy(x.page.rank(x.me).server[:], name)
		o.server, o.of = s, map[uint64][]piece{}
	}
	o.of[serial] = of
	return nil
}

// forgetPieces ends the answers for a region, and gives its pieces back to the driver.
func (x *Path) forgetPieces(r *region) {
	x.published.offers.mu.Lock()
	defer x.published.offers.mu.Unlock()
	delete(x.published.offers.of, r.serial)
	x.releasePieces(r)
}

// releasePieces gives the pieces of a region, which may be nil, back to the driver.
func (x *Path) releasePieces(r *region) {
	for i := 0; r != nil && i < len(r.pieces); i++ {
		if p := &r.pieces[i]; p.handle != 0 {
			_ = x.driver.ReleasePiece(p.handle)
			p.handle = 0
		}
	}
}

// stopPieces ends all answers. No call follows.
func (x *Path) stopPieces() {
	x.published.offers.mu.Lock()
	defer x.published.offers.mu.Unlock()
	if x.published.offers.server == nil {
		return
	}
	x.published.offers.server.Close()
	x.published.offers.of = nil
	for _, r := range x.published.regions {
		x.releasePieces(r)
	}
}

// descriptors returns the pieces of a region, none if one cannot be exported. The caller closes them.
func (x *Path) descriptors(serial uint64) (all []device.Piece) {
	x.published.offers.mu.Lock()
	defer x.published.offers.mu.Unlock()
	if x.driver.EnterContext(x.dev.Context) != nil {
		return nil
	}
	defer x.driver.Leave()
	for _, p := range x.published.offers.of[serial] {
		fd, err := x.driver.ExportPiece(p.handle)
		if err != nil {
			pieces.Close(all)
			return nil
		}
		all = append(all, device.Piece{FD: fd, Size: int64(p.size)})
	}
	return all
}

// importPieces maps the pieces of a peer's region.
func (x *Path) importPieces(owner int, serial uint64, size int64) (unsafe.Pointer, error) {
	all, err := pieces.Ask(string(x.page.rank(owner).server[:]), serial)
	defer pieces.Close(all)
	if err != nil {
		return nil, err
	}
	sum := int64(0)
	for _, p := range all {
		sum += p.Size
	}
	if sum != size {
		return nil, fmt.Errorf("%d bytes of pieces, want %d: %w", sum, size, errdefs.ErrInvalidArgument)
	}
	return x.driver.ImportPieces(all)
}
