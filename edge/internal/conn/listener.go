package conn

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// The pause after an Accept that failed because the system is short of a resource. It doubles each time.
const minAcceptPause, maxAcceptPause = 5 * time.Millisecond, time.Second

// Listener accepts the connections of the public address, within bounds.
//
// The kernel completes TCP handshakes before the program calls Accept, and resets the connections that are still in its queue when the
// listener closes. So Close takes them out of the kernel's queue first, and Accept returns them afterwards: without this, a restart
// loses clicks.
type Listener struct {
	net.Listener
	bounds   *Bounds
	mu       sync.Mutex // held during accept(2)
	accepted []net.Conn // by Close
}

// Listen listens on a TCP address.
func Listen(addr string, bounds *Bounds) (*Listener, error) {
	inner, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	return NewListener(inner, bounds), nil
}

// NewListener returns a Listener that accepts from inner.
func NewListener(inner net.Listener, bounds *Bounds) *Listener {
	return &Listener{Listener: inner, bounds: bounds}
}

// Accept waits for the next connection, which is a *[Conn]. fasthttp stops serving on any error, so running out of file descriptors
// for a moment would end the edge: Accept retries after such errors, as net/http does. Connections over a bound get a 503 envelope;
// fasthttp would respond with plain text.
func (l *Listener) Accept() (net.Conn, error) {
	pause := minAcceptPause
	for {
		c, err := l.next()
		if err == nil {
			if admitted := l.bounds.admit(c); admitted != nil {
				return admitted, nil
			}
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue // Close is about to close the listener
		}
		if !isTemporary(err) {
			return nil, err
		}
		time.Sleep(pause)
		pause = min(2*pause, maxAcceptPause)
	}
}

func (l *Listener) next() (c net.Conn, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.accepted); n > 0 {
		c, l.accepted = l.accepted[n-1], l.accepted[:n-1]
		return c, nil
	}
	return l.Listener.Accept()
}

// isTemporary reports whether Accept may succeed later.
func isTemporary(err error) bool {
	for _, temporary := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, temporary) {
			return true
		}
	}
	return false
}

// Close closes the listener. Accept still returns the clients that connected before, except those of the last microseconds.
func (l *Listener) Close() error {
	tcp, ok := l.Listener.(*net.TCPListener)
	if !ok {
		return l.Listener.Close()
	}
	// End a running Accept: the kernel keeps the socket open until that call returns.
	_ = tcp.SetDeadline(time.Unix(1, 0)) // fails if the listener is closed already
	l.mu.Lock()
	defer l.mu.Unlock()
	queue := acceptAll(tcp)
	err := tcp.Close()
	for _, fd := range queue {
		file := os.NewFile(uintptr(fd), "connection")
		if c, err := net.FileConn(file); err == nil {
			l.accepted = append(l.accepted, c)
		}
		_ = file.Close() // c has a descriptor of its own
	}
	return err
}

// acceptAll accepts the connections in the kernel's queue and returns their descriptors.
func acceptAll(ln *net.TCPListener) (fds []int) {
	raw, err := ln.SyscallConn()
	if err != nil {
		return nil
	}
	// Control fails if the listener is closed, and then there is no queue.
	_ = raw.Control(func(listening uintptr) {
		for {
			fd, _, err := syscall.Accept4(int(listening), syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
			switch err {
			case nil:
				fds = append(fds, fd)
			case syscall.ECONNABORTED, syscall.EINTR: // another connection may follow
			default:
				return
			}
		}
	})
	return fds
}
