package main

import (
	"net"
	"time"
)

// slack is how much later than requested a deadline may take effect, as on an edge (edge/internal/conn).
const slack = time.Second

// listener accepts connections that move a deadline as an edge does: on the next Read or Write, and only if it has moved by more than
// slack. fasthttp moves three deadlines per request; this way a busy connection moves two a second.
type listener struct{ net.Listener }

// Accept waits for the next connection.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &conn{Conn: c}, err
}

type conn struct {
	net.Conn
	read, write deadline
}

// SetDeadline sets both deadlines.
func (c *conn) SetDeadline(t time.Time) error {
	c.read.wanted, c.write.wanted = t, t
	return nil
}

// SetReadDeadline sets the time at which Read starts to fail, or up to a second later.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.read.wanted = t
	return nil
}

// SetWriteDeadline sets the time at which Write starts to fail, or up to a second later.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.write.wanted = t
	return nil
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	if err := c.read.apply(c.Conn.SetReadDeadline); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	if err := c.write.apply(c.Conn.SetWriteDeadline); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// deadline is a requested deadline and the one that is set on the socket.
type deadline struct{ wanted, set time.Time }

func (d *deadline) apply(set func(time.Time) error) error {
	if d.wanted.IsZero() == d.set.IsZero() {
		if late := d.set.Sub(d.wanted); 0 <= late && late <= slack {
			return nil
		}
	}
	d.set = d.wanted
	if !d.wanted.IsZero() {
		d.set = d.wanted.Add(slack)
	}
	return set(d.set)
}
