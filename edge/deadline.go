package main

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"deeplink/shared/wire"
)

// deadlineSlack is how much later than asked for a deadline may fall. fasthttp moves three of them per request, which cost 8 to
// 10 % of all the time there is; within the slack they stay where they are, so that a busy connection moves two a second.
const deadlineSlack = time.Second

// conn is a connection whose deadlines take effect when something is read or written, and only when they moved by more than the
// slack. Reading and writing are one goroutine's; Close may be anyone's.
type conn struct {
	net.Conn
	read, write deadline
	heard       bool // a byte has come
	head        wire.Head
	gate        *wire.Gate // left by the first Close; nil: there is none
	closed      atomic.Bool
}

// Close closes the connection and leaves its place to another one.
func (c *conn) Close() error {
	if c.gate != nil && c.closed.CompareAndSwap(false, true) {
		c.gate.Leave()
	}
	return c.Conn.Close()
}

// SetDeadline sets both deadlines.
func (c *conn) SetDeadline(t time.Time) error {
	c.read.wanted, c.write.wanted = t, t
	return nil
}

// SetReadDeadline sets the time from which on Read fails, or up to a second later.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.read.wanted = t
	return nil
}

// SetWriteDeadline sets the time from which on Write fails, or up to a second later.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.write.wanted = t
	return nil
}

// Read reads; io.EOF stands for a time-out before the first byte.
func (c *conn) Read(b []byte) (int, error) {
	if err := c.read.arm(c.Conn.SetReadDeadline); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard = true
		c.head.Add(b[:n], maxHeader)
	} else if timeout := net.Error(nil); !c.heard && errors.As(err, &timeout) && timeout.Timeout() {
		err = io.EOF
	}
	return n, err
}

// Write writes all of b.
func (c *conn) Write(b []byte) (int, error) {
	if err := c.write.arm(c.Conn.SetWriteDeadline); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// deadline is one that is wanted and the one that is set.
type deadline struct{ wanted, set time.Time }

// arm sets the deadline unless the one that is set will do: not before the wanted one, and not more than the slack after it.
func (d *deadline) arm(set func(time.Time) error) error {
	if d.wanted.IsZero() == d.set.IsZero() {
		if late := d.set.Sub(d.wanted); 0 <= late && late <= deadlineSlack {
			return nil
		}
	}
	next := d.wanted
	if !next.IsZero() {
		next = next.Add(deadlineSlack)
	}
	d.set = next
	return set(next)
}
