package attack

import "syscall"

// tcpEstablished is the state of a connection that neither side has closed: the first byte of struct tcp_info (Linux).
const tcpEstablished = 1

// isClosed asks the kernel. A read would first return the unread response, not the end of the connection.
func isClosed(raw syscall.RawConn) (closed bool) {
	err := raw.Control(func(fd uintptr) {
		state, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_INFO)
		closed = err != nil || state&0xff != tcpEstablished
	})
	return closed || err != nil
}
