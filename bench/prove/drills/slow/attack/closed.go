package attack

import "syscall"

// tcpEstablished is the state of a connection whose both sides are there: the first byte of struct tcp_info (Linux).
const tcpEstablished = 1

// isClosed asks the kernel, for what the server said stands before its end in the buffer and is not to be read.
func isClosed(raw syscall.RawConn) (closed bool) {
	err := raw.Control(func(fd uintptr) {
		state, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_INFO)
		closed = err != nil || state&0xff != tcpEstablished
	})
	return closed || err != nil
}
