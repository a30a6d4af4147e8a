package main

import (
	"net"
	"time"
)

// slack is how much later than requested a deadline may fire, as on an edge (edge/internal/conn).
const slack = time.Second

// listener accepts connections that move a deadline only if the new one is more than slack later.
type listener struct{ net.Listener }

// Accept waits for the next connection.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &conn{Conn: c}, err
}

type conn struct {
	net.Conn
	read, write time.Time // the deadlines in force
}

// SetDeadline sets both deadlines.
func (c *conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline sets the time at which Read starts to fail, or up to a second later.
func (c *conn) SetReadDeadline(t time.Time) error { return move(&c.read, t, c.Conn.SetReadDeadline) }

// SetWriteDeadline sets the time at which Write starts to fail, or up to a second later.
func (c *conn) SetWriteDeadline(t time.Time) error { return move(&c.write, t, c.Conn.SetWriteDeadline) }

func move(to *time.Time, wanted time.Time, set func(time.Time) error) error {
	if late := to.Sub(wanted); !wanted.IsZero() && !to.IsZero() && 0 <= late && late <= slack {
		return nil
	}
	*to = wanted
	if !wanted.IsZero() {
		*to = wanted.Add(slack)
	}
	return set(*to)
}
