package tcp

// journal holds the bytes of a stream that the peer may not have received, so that another connection can send them
// again. Bytes are lent (memory of the caller, which leaves it unchanged) or copied.
type journal struct {
	base, end uint64 // positions in the stream of the first byte held and after the last one
	spans     []span
	first     int // index in spans of the first byte held
	lent      int // lent spans
	// Copies are written to now. Full, it changes places with old, once no copy in old is held.
	now, old region
	joined   bool // the last span is a copy that ends at now.used
}

// span is a part of the stream.
type span struct {
	b    []byte
	lent bool
}

// region is memory for copies. until is the position after the last byte copied into it.
type region struct {
	mem   []byte
	used  int
	until uint64
}

// minRegion is the smallest memory for copies: several frames that are sent in short calls.
const minRegion = 4 * shortCall

// add appends bytes to the stream. Hot path: it allocates only until the regions are large enough.
func (j *journal) add(b []byte, lent bool) {
	if len(b) == 0 {
		return
	}
	if lent {
		j.push(span{b, true})
		j.lent++
		j.joined = false
	} else if at := j.reserve(len(b)); j.joined {
		last := &j.spans[len(j.spans)-1]
		last.b = last.b[:len(last.b)+copy(at, b)]
	} else {
		j.push(span{at[:copy(at, b)], false})
		j.joined = true
	}
	j.end += uint64(len(b))
	if !lent {
		j.now.until = j.end
	}
}

func (j *journal) push(s span) {
	if len(j.spans) == cap(j.spans) && j.first > 0 {
		n := copy(j.spans, j.spans[j.first:])
		clear(j.spans[n:])
		j.spans, j.first = j.spans[:n], 0
	}
	j.spans = append(j.spans, s)
}

// reserve returns the next n bytes of memory for copies.
func (j *journal) reserve(n int) []byte {
	if n > len(j.now.mem)-j.now.used {
		if j.now.until <= j.base {
			j.now.used = 0
		} else {
			j.now, j.old = j.old, j.now
			if j.now.until > j.base { // still held by spans, which keep the memory
				j.now.mem = nil
			}
			j.now.used = 0
		}
		j.joined = false
		if n > len(j.now.mem) {
			size := max(minRegion, len(j.old.mem))
			for size < n {
				size *= 2
			}
			j.now.mem = make([]byte, size)
		}
	}
	at := j.now.mem[j.now.used:]
	j.now.used += n
	return at
}

// trim forgets the bytes before a position.
func (j *journal) trim(to uint64) {
	for j.first < len(j.spans) && j.base < to {
		s := &j.spans[j.first]
		n := min(uint64(len(s.b)), to-j.base)
		j.base += n
		if s.b = s.b[n:]; len(s.b) > 0 {
			return
		}
		if s.lent {
			j.lent--
		}
		*s = span{}
		j.first++
	}
	if j.first == len(j.spans) {
		j.spans, j.first, j.joined = j.spans[:0], 0, false
	}
}

// own copies all lent bytes.
func (j *journal) own() {
	if j.lent == 0 {
		return
	}
	total := 0
	for _, s := range j.spans[j.first:] {
		if s.lent {
			total += len(s.b)
		}
	}
	at := j.reserve(total)
	for i := j.first; i < len(j.spans); i++ {
		if s := &j.spans[i]; s.lent {
			n := copy(at, s.b)
			s.b, s.lent = at[:n:n], false
			at = at[n:]
		}
	}
	j.now.until, j.lent, j.joined = j.end, 0, false
}

// from returns the held bytes from a position up to the end of their span.
func (j *journal) from(at uint64) []byte {
	pos := j.base
	for _, s := range j.spans[j.first:] {
		if next := pos + uint64(len(s.b)); at < next {
			return s.b[at-pos:]
		}
		pos += uint64(len(s.b))
	}
	return nil
}
