package wire

import (
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Gate limits the number of open connections, which bounds the memory for all connections.
type Gate struct {
	room int64
	open atomic.Int64
}

// NewGate returns a gate for at most room open connections.
func NewGate(room int) *Gate { return &Gate{room: int64(room)} }

// refuseTimeout bounds the write of a refusal. The refusal fits into the empty send buffer of a new connection, so the write does not block.
const refuseTimeout = 100 * time.Millisecond

// Room returns the maximum number of open connections.
func (g *Gate) Room() int64 { return g.room }

// Admit reports whether c is admitted. The caller must call Leave once for an admitted connection. Admit responds to any other connection
// with 503 and closes it.
func (g *Gate) Admit(c net.Conn) bool {
	if g.open.Add(1) <= g.room {
		return true
	}
	g.Leave()
	Refuse(c, "Too many connections. Retry with backoff.")
	return false
}

// Refuse responds to a new connection with a 503 envelope and closes it.
func Refuse(c net.Conn, message string) {
	_ = c.SetWriteDeadline(time.Now().Add(refuseTimeout)) // errors do not matter: the client has disconnected
	_, _ = c.Write(Refusal(http.StatusServiceUnavailable, message, Request{}, time.Now()))
	_ = c.Close()
}

// Leave releases the place of a connection that Admit admitted.
func (g *Gate) Leave() { g.open.Add(-1) }
