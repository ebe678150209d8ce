package netconf

import "io"

// ServeStream serves one session over a stream without a login, and returns when the session has ended.
func (s *Server) ServeStream(stream io.ReadWriteCloser) {
	<-s.start(stream, func(id uint64) { s.session(stream, id) })
}
