package main

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"deeplink/shared/wire"
)

// maxConnections bounds the connections of the public address. Each may take a buffer for reading, one for writing and a goroutine.
const maxConnections = 256 << 10

// The pause after an Accept that failed because the system lacks something, doubled each time.
const minAcceptPause, maxAcceptPause = 5 * time.Millisecond, time.Second

// listener is that of the public address. Its connections keep their deadlines with a slack of one second, and end
// silently when no byte ever came: browsers open spare ones, and would show an answer nobody asked for to the next click.
//
// The kernel lets clients in before anyone accepts them, and hangs up on those who wait when the listener closes. So Close takes them
// out of the kernel's queue first, for Accept to return.
type listener struct {
	net.Listener
	gate *wire.Gate
	mu   sync.Mutex // held while the kernel is asked
	last []net.Conn // those whom Close accepted
}

func listen(addr string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &listener{Listener: ln, gate: wire.NewGate(maxConnections)}, nil
}

// Accept waits for the next connection. fasthttp takes any error for the end of the listener, so that running out of file
// descriptors for a moment would end the edge: such errors are waited out here, as net/http does. Whom there is no room for is turned
// away with the envelope, which fasthttp would do in plain text.
func (l *listener) Accept() (net.Conn, error) {
	pause := minAcceptPause
	for {
		c, err := l.next()
		if err == nil {
			if l.gate.Admit(c) {
				return &conn{Conn: c, gate: l.gate}, nil
			}
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue // it is about to be closed
		}
		if !passes(err) {
			return nil, err
		}
		time.Sleep(pause)
		pause = min(2*pause, maxAcceptPause)
	}
}

func (l *listener) next() (c net.Conn, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.last); n > 0 {
		c, l.last = l.last[n-1], l.last[:n-1]
		return c, nil
	}
	return l.Listener.Accept()
}

// passes reports whether an Accept may succeed later.
func passes(err error) bool {
	for _, lack := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, lack) {
			return true
		}
	}
	return false
}

// Close closes the listener. Whoever connected before is accepted, but for those who come in the very last microseconds.
func (l *listener) Close() error {
	tcp, ok := l.Listener.(*net.TCPListener)
	if !ok {
		return l.Listener.Close()
	}
	// Who is in Accept has to leave it, or the kernel would let clients in until that one has.
	_ = tcp.SetDeadline(time.Unix(1, 0)) // fails when it is closed
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := queued(tcp)
	err := tcp.Close()
	for _, fd := range waiting {
		file := os.NewFile(uintptr(fd), "connection")
		if c, err := net.FileConn(file); err == nil {
			l.last = append(l.last, c)
		}
		_ = file.Close() // c has a descriptor of its own
	}
	return err
}

// queued accepts whoever waits and returns their descriptors.
func queued(ln *net.TCPListener) (fds []int) {
	raw, err := ln.SyscallConn()
	if err != nil {
		return nil
	}
	// It fails for a closed listener, for which nobody waits.
	_ = raw.Control(func(listening uintptr) {
		for {
			fd, _, err := syscall.Accept4(int(listening), syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
			switch err {
			case nil:
				fds = append(fds, fd)
			case syscall.ECONNABORTED, syscall.EINTR: // the next one may be there
			default:
				return
			}
		}
	})
	return fds
}
