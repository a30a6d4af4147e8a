package load

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// Line sends a target one request at a time, outside of a round. It is not safe for concurrent use.
type Line struct {
	target    Target
	tls       *tls.Config
	timeout   time.Duration
	conn      net.Conn
	responses responseReader
}

// NewLine returns a line that connects with its first request. config is for https targets, nil for the default.
func NewLine(target Target, config *tls.Config, timeout time.Duration) *Line {
	l := &Line{target: target, tls: config, timeout: timeout}
	l.responses = responseReader{buffer: make([]byte, bufferSize), fill: func(to []byte) (int, error) { return l.conn.Read(to) }}
	return l
}

// Ask sends a request and returns the status of its response. After an error the next call reconnects.
func (l *Line) Ask(ctx context.Context, request []byte) (status int, err error) {
	if l.conn == nil {
		if l.conn, err = l.target.dial(ctx, l.tls, l.timeout); err != nil {
			l.conn = nil
			return 0, err
		}
		l.responses.reset()
	}
	a, err := l.roundTrip(request)
	if err != nil || a.last {
		l.Close()
	}
	return a.status, err
}

func (l *Line) roundTrip(request []byte) (response, error) {
	if err := l.conn.SetDeadline(time.Now().Add(l.timeout)); err != nil {
		return response{}, err
	}
	if _, err := l.conn.Write(request); err != nil {
		return response{}, err
	}
	return l.responses.read(request[0] == 'H')
}

// Close closes the connection.
func (l *Line) Close() {
	if l.conn != nil {
		_ = l.conn.Close() // no more data will be sent
		l.conn = nil
	}
}
