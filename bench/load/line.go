package load

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// Line asks a target one request at a time when told to, without a round. It is for one goroutine.
type Line struct {
	target  Target
	tls     *tls.Config
	timeout time.Duration
	conn    net.Conn
	answers answers
}

// NewLine returns a line that connects with its first request. config is for targets with https, nil for the usual.
func NewLine(target Target, config *tls.Config, timeout time.Duration) *Line {
	l := &Line{target: target, tls: config, timeout: timeout}
	l.answers = answers{buffer: make([]byte, bufferSize), fill: func(to []byte) (int, error) { return l.conn.Read(to) }}
	return l
}

// Ask sends a request and returns the status of its answer. After an error the next call connects anew.
func (l *Line) Ask(ctx context.Context, request []byte) (status int, err error) {
	if l.conn == nil {
		if l.conn, err = l.target.dial(ctx, l.tls, l.timeout); err != nil {
			l.conn = nil
			return 0, err
		}
		l.answers.reset()
	}
	a, err := l.exchange(request)
	if err != nil || a.last {
		l.Close()
	}
	return a.status, err
}

func (l *Line) exchange(request []byte) (answer, error) {
	if err := l.conn.SetDeadline(time.Now().Add(l.timeout)); err != nil {
		return answer{}, err
	}
	if _, err := l.conn.Write(request); err != nil {
		return answer{}, err
	}
	return l.answers.read(request[0] == 'H')
}

// Close hangs up.
func (l *Line) Close() {
	if l.conn != nil {
		_ = l.conn.Close() // nothing is left to be said on it
		l.conn = nil
	}
}
