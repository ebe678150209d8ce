package wire

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
)

// endOfMessage ends a message until both peers have agreed on base 1.1.
const endOfMessage = "]]>]]>"

// maxChunkHeader bounds "\n#4294967295\n".
const maxChunkHeader = 13

// Framer cuts a byte stream into NETCONF messages (RFC 6242, section 4). One goroutine may
// read while another writes; neither method may overlap with itself, nor with Chunked.
type Framer struct {
	r       *bufio.Reader
	w       io.Writer
	limit   int
	chunked bool
	out     []byte // reused by Write, which sends a message in one piece
}

// NewFramer frames rw with the end-of-message delimiter. It refuses messages of more than limit bytes.
func NewFramer(rw io.ReadWriter, limit int) *Framer {
	return &Framer{r: bufio.NewReader(rw), w: rw, limit: limit}
}

// Chunked changes to chunked framing. Call it when both hellos have named base 1.1.
func (f *Framer) Chunked() { f.chunked = true }

// Read returns the next message. io.EOF means that the peer closed between messages.
func (f *Framer) Read() ([]byte, error) {
	if f.chunked {
		return f.readChunks()
	}
	var msg []byte
	for {
		part, err := f.r.ReadSlice('>')
		if len(msg)+len(part) > f.limit+len(endOfMessage) {
			return nil, fmt.Errorf("%w: a message of more than %d bytes", ErrMalformed, f.limit)
		}
		msg = append(msg, part...)
		switch {
		case err == bufio.ErrBufferFull: //nolint:errorlint // ReadSlice returns it bare
			continue
		case err != nil:
			return nil, endOf(err, len(bytes.TrimSpace(msg)) > 0)
		case bytes.HasSuffix(msg, []byte(endOfMessage)):
			return msg[:len(msg)-len(endOfMessage)], nil
		}
	}
}

func (f *Framer) readChunks() ([]byte, error) {
	var msg []byte
	for first := true; ; first = false {
		size, last, err := f.chunkHeader(first)
		if err != nil {
			return nil, err
		}
		if last {
			if first {
				return nil, fmt.Errorf("%w: a message without a chunk", ErrMalformed)
			}
			return msg, nil
		}
		if size > f.limit-len(msg) {
			return nil, fmt.Errorf("%w: a message of more than %d bytes", ErrMalformed, f.limit)
		}
		// The buffer grows with the received bytes, not with the size in the header.
		for size > 0 {
			n := min(size, 1<<16)
			at := len(msg)
			msg = append(msg, make([]byte, n)...)
			if _, err := io.ReadFull(f.r, msg[at:]); err != nil {
				return nil, endOf(err, true)
			}
			size -= n
		}
	}
}

// chunkHeader reads "\n#<size>\n", or "\n##\n" for the end of a message.
func (f *Framer) chunkHeader(first bool) (size int, last bool, err error) {
	var h [maxChunkHeader]byte
	n := 0
	for n < 2 || h[n-1] != '\n' {
		if n == len(h) {
			return 0, false, fmt.Errorf("%w: chunk header %q", ErrMalformed, h[:])
		}
		c, err := f.r.ReadByte()
		if err != nil {
			return 0, false, endOf(err, !first || n > 0)
		}
		h[n] = c
		n++
		if (n == 1 && c != '\n') || (n == 2 && c != '#') {
			return 0, false, fmt.Errorf("%w: chunk header %q", ErrMalformed, h[:n])
		}
	}
	digits := string(h[2 : n-1])
	if digits == "#" {
		return 0, true, nil
	}
	v, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || digits[0] < '1' || digits[0] > '9' {
		return 0, false, fmt.Errorf("%w: chunk of %q bytes", ErrMalformed, digits)
	}
	return int(v), false, nil
}

// endOf returns io.EOF for an end between messages, and an error for an end within a message.
func endOf(err error, within bool) error {
	if (err == io.EOF || err == io.ErrUnexpectedEOF) && within { //nolint:errorlint // readers return them bare
		return fmt.Errorf("%w: the stream ends within a message", ErrMalformed)
	}
	return err
}

// Write sends one message, which must not be empty.
func (f *Framer) Write(msg []byte) error {
	b := f.out[:0]
	if f.chunked {
		b = append(b, "\n#"...)
		b = strconv.AppendInt(b, int64(len(msg)), 10)
		b = append(b, '\n')
		b = append(b, msg...)
		b = append(b, "\n##\n"...)
	} else {
		b = append(b, msg...)
		b = append(b, endOfMessage...)
	}
	f.out = b
	_, err := f.w.Write(b)
	return err
}
